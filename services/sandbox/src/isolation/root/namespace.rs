//! The mount namespace of a sandbox. The last process that leaves the namespace takes it apart, and holds a lock of the whole machine meanwhile.
//! A process of a tenant that uses the processors much gets few turns, so it would hold the lock for seconds, and the starts and ends of all other
//! sandboxes would wait. The service therefore stays in each namespace until its processes are gone, and takes it apart itself.

use crate::isolation::processes;
use std::{fs::File, io};

/// A mount namespace that the service holds.
#[derive(Debug)]
pub(crate) struct MountNamespace {
    file: File,
}

impl MountNamespace {
    /// That of the sandbox for which the process `bwrap` was started.
    ///
    /// # Errors
    /// When the sandbox has ended, or the service may not look at it.
    pub(crate) fn of(bwrap: u32) -> io::Result<Self> {
        let inside = processes::first(bwrap)?;
        Ok(Self { file: File::open(format!("/proc/{inside}/ns/mnt"))? })
    }

    /// Takes it apart if no process is in it.
    ///
    /// Cancel-safe.
    pub(crate) async fn leave(self) {
        // The kernel waits for some milliseconds. A runtime that stops closes the file as well.
        tokio::task::spawn_blocking(move || drop(self.file)).await.ok();
    }
}
