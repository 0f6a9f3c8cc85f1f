//! The file system of the data directory. All workspaces share it, and the service needs it too: without space it could
//! not even note which worker owns a session. So the service keeps a reserve: below it nothing new begins.

use super::space::Space;
use crate::error::Error;
use rpc::v1::ErrorCode;
use std::path::PathBuf;

/// Free inodes that count as the reserve of a file system that has a fixed number of them.
const INODES_RESERVE: u64 = 10_000;
const MIB: u64 = 1024 * 1024;

/// The file system of the data directory.
#[derive(Debug)]
pub struct HostDisk {
    directory: PathBuf,
    reserve: Space,
}

impl HostDisk {
    /// The file system of `directory`, of which `reserve_bytes` stay free.
    pub fn new(directory: PathBuf, reserve_bytes: u64) -> Self {
        Self { directory, reserve: Space { bytes: reserve_bytes, inodes: INODES_RESERVE } }
    }

    /// What sandboxes could still take.
    ///
    /// # Errors
    /// Those of statvfs.
    pub fn free(&self) -> Result<Space, Error> {
        let stat = rustix::fs::statvfs(&self.directory)
            .map_err(|errno| Error::io("measure the disk of the data directory")(errno.into()))?;
        // Some file systems make inodes as they need them, and report none.
        let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
        Ok(Space { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), inodes })
    }

    /// Returns what is left, and refuses when that is less than the reserve.
    ///
    /// # Errors
    /// `disk_full`; it may be repeated later.
    pub fn check(&self) -> Result<Space, Error> {
        let free = self.free()?;
        if self.has_reserve(free) {
            Ok(free)
        } else {
            Err(Error::refused(ErrorCode::DiskFull, self.text(free)))
        }
    }

    /// Whether `free` is enough.
    pub fn has_reserve(&self, free: Space) -> bool {
        self.reserve.bytes <= free.bytes && self.reserve.inodes <= free.inodes
    }

    /// Whether half of the reserve is gone, so that running programs must stop as well.
    pub fn is_critical(&self, free: Space) -> bool {
        free.bytes < self.reserve.bytes / 2 || free.inodes < self.reserve.inodes / 2
    }

    /// What is wrong when `free` is not enough, and what happens now.
    pub fn text(&self, free: Space) -> String {
        format!(
            "the disk of the sandbox machine is nearly full: {} MiB and {} inodes are free, {} MiB and {} inodes are reserved; \
             try again later",
            free.bytes / MIB,
            free.inodes,
            self.reserve.bytes / MIB,
            self.reserve.inodes
        )
    }
}
