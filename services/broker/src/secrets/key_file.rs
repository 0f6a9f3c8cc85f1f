//! The key of a deployment in a file that only the broker reads.

use aws_lc_rs::{digest, rand};
use domain::text::hex;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};
use zeroize::{Zeroize as _, Zeroizing};

pub(super) const KEY_BYTES: usize = 32;
/// Bytes of the digest that names the key.
const ID_BYTES: usize = 8;
/// Permissions of group and others, which the file of a secret must not have.
const OF_OTHERS: u32 = 0o077;

/// The key, with its identity.
pub struct KeyFile {
    id: String,
    key: [u8; KEY_BYTES],
}

/// Why the broker cannot use the file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot read or write the key file {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("other users may read the key file {0}; run chmod 600, and consider its secrets as read")]
    Open(PathBuf),
    /// It is no key.
    #[error("the key file {0} has not {KEY_BYTES} bytes; restore it: without it every stored secret is lost")]
    Damaged(PathBuf),
}

impl KeyFile {
    /// Opens the file, or creates it with a new key. A key is on the disk before this function returns it, and a crash leaves no half file.
    ///
    /// # Errors
    /// By the reason.
    pub fn open_or_create(path: &Path) -> Result<Self, KeyFileError> {
        let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
        match Self::open(path) {
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(&mut *key).map_err(|_| failed(io::Error::other("no randomness")))?;
        let new = path.with_extension(format!("new.{}", std::process::id()));
        let written = write_new(&new, &*key).and_then(|()| fs::hard_link(&new, path));
        let removed = fs::remove_file(&new);
        match written {
            // Another process was first: its key counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => written.and(removed).map_err(failed)?,
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Self::open(path)
    }

    /// Opens the file, which must exist.
    ///
    /// # Errors
    /// By the reason.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let read = read_private(path, KEY_BYTES as u64);
        let read = read.map_err(|source| KeyFileError::Io { path: path.to_owned(), source })?;
        let bytes = read.ok_or_else(|| KeyFileError::Open(path.to_owned()))?;
        let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice())
            .map_err(|_| KeyFileError::Damaged(path.to_owned()))?;
        let id = hex(&digest::digest(&digest::SHA256, &key).as_ref()[..ID_BYTES]);
        Ok(Self { id, key })
    }

    /// The identity of the key. It says nothing about the key itself.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Reads the file of a secret: at most one byte more than `bytes_max`. `None`: other users may read the file.
pub(crate) fn read_private(path: &Path, bytes_max: u64) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & OF_OTHERS != 0 {
        return Ok(None);
    }
    // A vector that grows would leave parts of the secret in the memory that it gives back.
    let capacity = usize::try_from(bytes_max).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn write_new(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key)?;
    file.sync_all()
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyFile").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = KeyFile::open_or_create(&path).unwrap();
        let second = KeyFile::open_or_create(&path).unwrap();
        assert_eq!((first.id(), first.key()), (second.id(), second.key()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(!format!("{first:?}").contains("key:"));
    }

    #[test]
    fn a_file_that_others_read_or_that_is_no_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        KeyFile::open_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(KeyFile::open_or_create(&path), Err(KeyFileError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for bytes in [&b""[..], &[1; 31], &[1; 33]] {
            fs::write(&path, bytes).unwrap();
            assert!(matches!(KeyFile::open_or_create(&path), Err(KeyFileError::Damaged(_))));
            assert_eq!(fs::read(&path).unwrap(), bytes, "a damaged key is never replaced");
        }
        let nowhere = directory.path().join("missing/key");
        assert!(matches!(KeyFile::open_or_create(&nowhere), Err(KeyFileError::Io { .. })));
    }
}
