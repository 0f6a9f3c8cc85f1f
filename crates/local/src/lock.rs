//! File locks (`flock`). The system releases them when their process ends for any reason.

use crate::error::Error;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Write as _},
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
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(Error::io("read", path))?;
                Err(Error::Busy { file: path.to_owned(), pid: pid.trim().to_owned() })
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
