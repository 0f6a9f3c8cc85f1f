//! A fingerprint of the files of a workspace. As long as it stays the same, no file has changed: every change gives a file a new time of change
//! (ctime), which programs of a sandbox cannot set. A program that keeps a file in its memory (mmap) can change its content for some seconds without
//! a new time; git misses such changes too.

use super::walk::{self, DIRECTORY, Visitor};
use rustix::fs::{Dir, Mode, Stat};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::CStr,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// Entries that are read at most; that takes some 30 ms. A larger tree has no fingerprint.
const ENTRIES_MAX: u64 = 20_000;
/// A file that changed within this time before the walk can change again without another time: the kernel rounds times down to its tick, of 10 ms at
/// most. A tree with such a file has no fingerprint.
const TICK: Duration = Duration::from_millis(20);
/// The same on a file system that keeps whole seconds, such as an ext4 with small inodes.
const WHOLE_SECOND: Duration = Duration::from_secs(2);

/// The fingerprint of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Walks through `tree`. `None`: the tree is too large or too deep, changes right now, or cannot be read completely. Blocks.
    ///
    /// # Errors
    /// When the tree itself cannot be opened.
    pub fn of(tree: &Path) -> io::Result<Option<Self>> {
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
        let root = rustix::fs::open(tree, DIRECTORY, Mode::empty())?;
        let mut print = Print { hash: Sha256::new(), entries: 0, is_partial: false, newest: Duration::ZERO };
        print.add(c"", 0, &rustix::fs::fstat(&root)?);
        walk::walk(&mut print, Dir::new(root)?);
        let is_fingerprint = is_settled(print.newest, begun) && !print.is_partial;
        Ok(is_fingerprint.then(|| Self(print.hash.finalize().into())))
    }
}

/// Whether every change after `begun` gets another time than `newest`; both are times since 1970.
fn is_settled(newest: Duration, begun: Duration) -> bool {
    let granularity = if newest.subsec_nanos() == 0 { WHOLE_SECOND } else { TICK };
    newest + granularity < begun
}

/// A fingerprint that is being taken.
struct Print {
    hash: Sha256,
    entries: u64,
    is_partial: bool,
    /// The newest time of change, since 1970.
    newest: Duration,
}

impl Visitor for Print {
    fn is_at_its_end(&self) -> bool {
        self.entries >= ENTRIES_MAX
    }

    fn add(&mut self, name: &CStr, depth: usize, stat: &Stat) {
        self.entries += 1;
        let changed = u64::try_from(stat.st_ctime).ok().zip(u32::try_from(stat.st_ctime_nsec).ok());
        let changed = changed.map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds));
        let Some(changed) = changed else { return self.skip() };
        self.newest = self.newest.max(changed);
        let [depth, name_bytes] = [depth, name.count_bytes()].map(|number| number as u64);
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        for number in [depth, name_bytes, stat.st_dev, stat.st_ino, u64::from(stat.st_mode), size] {
            self.hash.update(number.to_le_bytes());
        }
        self.hash.update(changed.as_nanos().to_le_bytes());
        self.hash.update(name.to_bytes());
    }

    fn skip(&mut self) {
        self.is_partial = true;
    }
}

#[cfg(test)]
mod tests;
