//! File locks (`flock`). The system releases them when their process ends for any reason.

use crate::error::Error;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    path::Path,
};

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks `path` exclusively and writes the pid into it.
    ///
    /// # Errors
    /// `Busy` with the holder's pid if another process holds the lock.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {
                let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                written.map_err(Error::io("write", path))?;
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                Err(Error::Busy { file: path.to_owned(), pid: read_pid(&mut file, path)? })
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }

    /// Waits until `path` is free and locks it exclusively. Blocks the thread.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn wait(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        file.lock().map_err(Error::io("lock", path))?;
        Ok(Self { _file: file })
    }

    /// The pid of the process that holds `path` exclusively, as the file has it: a process that has just locked the file may not have written
    /// its own yet. Writes nothing, and makes no file.
    ///
    /// # Errors
    /// The file cannot be opened, locked or read.
    pub fn find_holder(path: &Path) -> Result<Option<String>, Error> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", path))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(read_pid(&mut file, path)?)),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }

    /// Waits until no process holds `path` exclusively and locks it shared. Blocks the thread.
    pub(crate) fn wait_shared(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        file.lock_shared().map_err(Error::io("lock", path))?;
        Ok(Self { _file: file })
    }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(Error::io("open", path))
}

fn read_pid(file: &mut File, path: &Path) -> Result<String, Error> {
    let mut pid = String::new();
    file.read_to_string(&mut pid).map_err(Error::io("read", path))?;
    Ok(pid.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::fs;

    #[test]
    fn who_asks_for_the_holder_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(Lock::find_holder(&path).unwrap(), None);
        assert!(!path.exists());
        let lock = Lock::take(&path).unwrap();
        let own = std::process::id().to_string();
        assert_eq!(Lock::find_holder(&path).unwrap(), Some(own));
        drop(lock);
        fs::write(&path, "another text").unwrap();
        assert_eq!(Lock::find_holder(&path).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another text");
        let _lock = Lock::take(&path).unwrap();
    }
}
