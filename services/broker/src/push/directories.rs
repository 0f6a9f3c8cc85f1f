//! The directories in which commits stay until they are checked. Each push has its own, which is removed at its end. What a broker that was killed left
//! there is removed by the next one.

use crate::directory;
use anyhow::{Context as _, ensure};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{fs::File, io::AsyncWriteExt as _};

/// Times that a removal is tried: a git that was killed may still write for a moment.
const TRIES: u32 = 40;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);
pub(super) const REPOSITORY: &str = "repository";
/// The file that tells a directory of pushes from another one, which must not be emptied. Its name is that of earlier versions.
const MARK: &str = ".flotilla-quarantines";

/// The directories of all pushes of a broker.
#[derive(Debug)]
pub struct PushDirectories {
    directory: PathBuf,
    next: AtomicU64,
    /// Another broker would empty the directory.
    _lock: fs::File,
}

/// The directory of one push.
#[derive(Debug)]
pub(super) struct PushDirectory {
    path: PathBuf,
    mark: PathBuf,
    is_removed: bool,
}

impl PushDirectories {
    /// Takes a directory over: makes it, locks it, and removes what an earlier broker left in it. Waits for a broker that ends.
    ///
    /// # Errors
    /// If the directory cannot be made, has files that are not of pushes, or another broker uses it.
    pub async fn open(directory: &Path) -> anyhow::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).context("make the directory")?;
        let directory = directory.canonicalize().context("find the directory")?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))
            .context("close the directory to others")?;
        let lock = directory::lock(&directory).await.context("lock the directory")?;
        let entries = fs::read_dir(&directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.context("read the directory")?;
        let mark = directory.join(MARK);
        ensure!(
            entries.is_empty() || mark.exists(),
            "{} has files that are not the broker's; name an empty directory",
            directory.display()
        );
        fs::write(&mark, "").context("write into the directory")?;
        for entry in entries.iter().filter(|entry| entry.path() != mark) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
        Ok(Self { directory, next: AtomicU64::new(0), _lock: lock })
    }

    /// Makes the directory of a push.
    pub(super) fn make(&self) -> io::Result<PushDirectory> {
        let path = self.directory.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(PushDirectory { mark: self.directory.join(MARK), path, is_removed: false })
    }
}

impl PushDirectory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A file outside of it that always exists.
    pub(super) fn mark(&self) -> &Path {
        &self.mark
    }

    /// Makes its repository, without commits, for objects of this format. `git init` would change the mode of a file, which the walls do not allow.
    pub(super) async fn make_repository(&self, format: &str) -> io::Result<()> {
        for directory in ["objects/pack", "refs/heads", "info"] {
            tokio::fs::create_dir_all(self.path.join(REPOSITORY).join(directory)).await?;
        }
        let configuration = format!(
            "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = {format}\n"
        );
        self.write(&format!("{REPOSITORY}/config"), configuration.as_bytes()).await?;
        self.write(&format!("{REPOSITORY}/HEAD"), b"ref: refs/heads/none\n").await
    }

    /// Makes a file in it.
    pub(super) async fn create(&self, name: &str) -> io::Result<File> {
        File::create(self.path.join(name)).await
    }

    /// Writes a file in it.
    pub(super) async fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = self.create(name).await?;
        file.write_all(content).await?;
        file.flush().await
    }

    /// Removes it. Its gits were killed before, and may still be ending.
    pub(super) async fn remove(mut self) {
        self.is_removed = true;
        for _ in 0..TRIES {
            match tokio::fs::remove_dir_all(&self.path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => tokio::time::sleep(PAUSE).await,
                Ok(()) | Err(_) => return,
            }
        }
        tracing::error!("the directory {} of a push cannot be removed", self.path.display());
    }
}

/// The task of the push panicked.
impl Drop for PushDirectory {
    fn drop(&mut self) {
        if !self.is_removed {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn nothing_stays_after_the_end_or_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("push");
        let directories = PushDirectories::open(&place).await.unwrap();
        let ended = directories.make().unwrap();
        ended.write("file", b"x").await.unwrap();
        let path = ended.path().to_owned();
        ended.remove().await;
        assert!(!path.exists());
        let killed = directories.make().unwrap();
        killed.write("file", b"x").await.unwrap();
        let path = killed.path().to_owned();
        std::mem::forget(killed);
        // The next broker begins when this one has ended, and not before.
        let end = async {
            assert!(path.exists());
            drop(directories);
        };
        let (directories, ()) = tokio::join!(PushDirectories::open(&place), end);
        assert!(!path.exists());
        drop(directories.unwrap().make().unwrap());
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        // A directory of something else is left as it is.
        fs::write(directory.path().join("precious"), "").unwrap();
        let error = PushDirectories::open(directory.path()).await.unwrap_err().to_string();
        assert!(error.contains("not the broker's") && directory.path().join("precious").exists(), "{error}");
    }
}
