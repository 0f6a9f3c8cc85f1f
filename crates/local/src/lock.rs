//! File locks (`flock`): they end with their process, however it ends.

use crate::Error;
use nix::{errno::Errno, fcntl::Flock, fcntl::FlockArg};
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
};

/// A held lock; dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    _held: Flock<File>,
}

impl Lock {
    /// Takes `file` for this process alone and writes the pid into it.
    ///
    /// # Errors
    /// `Busy` with the holder's pid when another process has it.
    pub fn take(file: &Path) -> Result<Self, Error> {
        let opened = open(file)?;
        match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                let written = held.set_len(0).and_then(|()| write!(held, "{}", std::process::id()));
                written.map_err(Error::io("write", file))?;
                Ok(Self { _held: held })
            }
            Err((mut other, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                other.read_to_string(&mut pid).map_err(Error::io("read", file))?;
                Err(Error::Busy { file: file.to_owned(), pid: pid.trim().to_owned() })
            }
            Err((_, errno)) => Err(Error::io("lock", file)(errno.into())),
        }
    }

    /// Waits for `file`, exclusively or shared with others. Blocks the thread.
    pub(crate) fn wait(file: &Path, how: FlockArg) -> Result<Self, Error> {
        let held =
            Flock::lock(open(file)?, how).map_err(|(_, errno)| Error::io("lock", file)(errno.into()))?;
        Ok(Self { _held: held })
    }
}

fn open(file: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(file)
        .map_err(Error::io("open", file))
}
