//! What a process has made of files that operators replace while it runs, such as certificates and CAs.

use crate::{error::Error, lock};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
    time::SystemTime,
};

/// The content of files, and the files that it is from.
#[derive(Debug)]
pub(super) struct FileContent<T> {
    files: Vec<PathBuf>,
    current: Mutex<Current<T>>,
}

#[derive(Debug)]
struct Current<T> {
    content: T,
    /// The files that `content` is from.
    version: FilesVersion,
    /// The files that cannot be used and that the log has named.
    refused: Option<FilesVersion>,
}

/// What changes when one of the files is replaced.
type FilesVersion = Vec<Option<FileVersion>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified_at: Option<SystemTime>,
}

impl FileVersion {
    fn find(file: &Path) -> Option<Self> {
        let metadata = fs::metadata(file).ok()?;
        Some(Self { inode: metadata.ino(), bytes: metadata.len(), modified_at: metadata.modified().ok() })
    }
}

impl<T: Clone> FileContent<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn read(files: Vec<PathBuf>, read: impl FnOnce() -> Result<T, Error>) -> Result<Self, Error> {
        // The version is older than what is read, so a change between the two makes the next use read again.
        let version = version(&files);
        let current = Current { content: read()?, version, refused: None };
        Ok(Self { files, current: Mutex::new(current) })
    }

    /// Returns what the files give now, or what they gave when they could be used last.
    pub(super) fn current(&self, read: impl FnOnce() -> Result<T, Error>) -> T {
        let mut current = lock(&self.current);
        let version = version(&self.files);
        if version == current.version {
            return current.content.clone();
        }
        match read() {
            Ok(content) => {
                tracing::info!("new connections use what {} has now", self.names());
                *current = Current { content, version, refused: None };
            }
            // The operator may have written only a part yet, so each use reads the files until they fit.
            Err(error) if current.refused.as_ref() != Some(&version) => {
                let error = anyhow::Error::new(error);
                let names = self.names();
                tracing::warn!(
                    "new connections use what {names} had before, because its content cannot be used: {error:#}"
                );
                current.refused = Some(version);
            }
            Err(_) => {}
        }
        current.content.clone()
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(" with ")
    }
}

fn version(files: &[PathBuf]) -> FilesVersion {
    files.iter().map(|file| FileVersion::find(file)).collect()
}
