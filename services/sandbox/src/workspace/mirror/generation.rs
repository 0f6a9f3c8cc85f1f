//! A mirror on the disk: a bare repository that belongs to the service and that every user may read. It never changes. When the server has more, the
//! service puts another generation into its place, and the earlier one stays as long as a clone reads it.

use super::{content::MirrorContent, key::MirrorKey};
use crate::{
    isolation::launch::Mount,
    layout::{self, remove_directory},
};
use chassis::tasks::Tasks;
use domain::{
    ids::{ProjectId, TenantId},
    text,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

/// Where a helper sees it.
const INSIDE: &str = "/run/sbx/mirror";
/// The directory of its packs.
pub(super) const PACKS: &str = "objects/pack";
/// What the service wrote besides packs. A change of any byte is found before the mirror is used.
const FRAME: [&str; 4] = ["HEAD", "config", "packed-refs", "sums"];
const RECORD: &str = "record.json";
/// Nothing of it comes from a server.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";

/// A generation of a mirror. Dropping one that was retired removes it.
#[derive(Debug)]
pub struct Generation {
    pub(super) directory: PathBuf,
    pub(super) key: MirrorKey,
    /// What it takes on the disk.
    pub(super) bytes: u64,
    frame_sha256: String,
    is_retired: AtomicBool,
    tasks: Tasks,
}

/// `record.json`, whose time is that of the last use:
/// `{"project":"prj_…","source":"9f86…","bytes":311000000,"frame_sha256":"60f2…"}`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    project: String,
    source: String,
    bytes: u64,
    frame_sha256: String,
}

impl Generation {
    /// Writes everything but the packs into `directory`. Blocks.
    pub(super) fn write_frame(directory: &Path, key: &MirrorKey, content: &MirrorContent) -> io::Result<()> {
        for name in ["", "refs", "objects", PACKS] {
            let path = directory.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        let (references, sums) = (content.references(), content.sums());
        let texts = ["ref: refs/heads/main\n", CONFIG, references.as_str(), sums.as_str()];
        for (name, text) in FRAME.iter().zip(texts) {
            fs::write(directory.join(name), text)?;
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o444))?;
        }
        let bytes = texts.iter().map(|text| text.len() as u64).sum::<u64>();
        let record = Record {
            project: key.project.to_string(),
            source: key.source.to_string(),
            bytes: bytes.saturating_add(content.bytes()),
            frame_sha256: frame_sha256(directory)?,
        };
        layout::replace_quickly(&directory.join(RECORD), &serde_json::to_vec(&record)?)
    }

    /// Reads the record of one, with the time of its last use. Blocks.
    pub(super) fn read(tenant: TenantId, directory: PathBuf, tasks: Tasks) -> io::Result<(Self, SystemTime)> {
        let path = directory.join(RECORD);
        let Record { project, source, bytes, frame_sha256 } = serde_json::from_slice(&fs::read(&path)?)?;
        let project: ProjectId = project.parse().map_err(io::Error::other)?;
        let key = MirrorKey { tenant, project, source: source.into() };
        let is_retired = AtomicBool::new(false);
        let generation = Self { directory, key, bytes, frame_sha256, is_retired, tasks };
        Ok((generation, fs::metadata(path)?.modified()?))
    }

    /// Whether everything but the content of the packs is as it was written. A helper checks the packs while it copies them. Blocks.
    pub(super) fn has_frame(&self) -> bool {
        frame_sha256(&self.directory).is_ok_and(|sha256| sha256 == self.frame_sha256)
    }

    /// Notes a use. Blocks.
    pub(super) fn touch(&self, now: SystemTime) -> io::Result<()> {
        fs::File::options().write(true).open(self.directory.join(RECORD))?.set_modified(now)
    }

    /// The mirror as a helper sees it.
    pub fn mount(&self) -> Mount {
        Mount::read(&self.directory, INSIDE)
    }

    /// Marks it as old. Its files are removed when the last clone that reads it has ended.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if *self.is_retired.get_mut() {
            let directory = std::mem::take(&mut self.directory);
            self.tasks.spawn("mirror", async move {
                let removed = tokio::task::spawn_blocking(move || remove_directory(&directory)).await;
                if let Err(error) = removed.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    tracing::warn!(%error, "a mirror that was removed takes space until the next start");
                }
            });
        }
    }
}

fn frame_sha256(directory: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    for name in FRAME {
        let content = fs::read(directory.join(name))?;
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    Ok(text::hex(&hash.finalize()))
}
