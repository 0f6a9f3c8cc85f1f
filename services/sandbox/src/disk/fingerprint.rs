//! A fingerprint of the files of a workspace. As long as it stays the same, no file has changed: every change gives a file a new time of change
//! (ctime), which programs of a sandbox cannot set. A program that keeps a file in its memory (mmap) can change its content for some seconds without
//! a new time; git misses such changes too.

use super::walk::{self, DIRECTORY, Visitor};
use rustix::{
    fs::{Dir, Mode, Stat},
    time::{ClockId, Timespec, clock_gettime},
};
use sha2::{Digest as _, Sha256};
use std::{ffi::CStr, io, path::Path, thread, time::Duration};

/// Entries that are read at most; that takes some 30 ms. A larger tree has no fingerprint.
const ENTRIES_MAX: u64 = 20_000;
/// A file that changed within this time before the walk may still change without another time: a write gives its time to the file before its content. A look at a
/// tree with such a file is not settled, unless no program runs.
const WRITE_TIME: Duration = Duration::from_millis(20);
/// The same on a file system that keeps whole seconds, such as an ext4 with small inodes. It can give its time to a later write too.
const WHOLE_SECOND: Duration = Duration::from_secs(2);
/// Looks at a tree that has just changed, until one is settled.
const LOOKS_MAX: u32 = 4;
/// The pause between them: the kernel's clock for files has ticked twice, or once on the slowest kernels.
const LOOK_PAUSE: Duration = Duration::from_millis(8);

/// The fingerprint of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// What a look at a tree found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLook {
    /// The fingerprint. If it is that of an earlier look that was settled, no change has begun since that one.
    pub fingerprint: Fingerprint,
    /// Whether every later change gives the tree another fingerprint.
    pub is_settled: bool,
}

impl TreeLook {
    /// Walks through `tree`. `None`: the tree is too large or too deep, or cannot be read completely. Blocks.
    ///
    /// # Errors
    /// When the tree itself cannot be opened.
    pub fn of(tree: &Path) -> io::Result<Option<Self>> {
        Self::with(tree, WRITE_TIME)
    }

    /// The same if no write to a file lasts longer than `write_time`.
    fn with(tree: &Path, write_time: Duration) -> io::Result<Option<Self>> {
        let begun = file_clock();
        let root = rustix::fs::open(tree, DIRECTORY, Mode::empty())?;
        let mut print = Print { hash: Sha256::new(), entries: 0, is_partial: false, newest: Duration::ZERO };
        print.add(c"", 0, &rustix::fs::fstat(&root)?);
        walk::walk(&mut print, Dir::new(root)?);
        let is_settled = is_settled(print.newest, begun, write_time);
        let fingerprint = Fingerprint(print.hash.finalize().into());
        Ok((!print.is_partial).then_some(Self { fingerprint, is_settled }))
    }
}

impl Fingerprint {
    /// Takes the settled fingerprint of a tree that nobody changes meanwhile. If the tree has just changed, this waits until the clock has ticked. Blocks.
    /// Returns `None` if the tree has no fingerprint, or if its file system keeps whole seconds.
    ///
    /// # Errors
    /// When the tree itself cannot be opened.
    pub fn of_still(tree: &Path) -> io::Result<Option<Self>> {
        for _ in 0..LOOKS_MAX {
            match TreeLook::with(tree, Duration::ZERO)? {
                Some(look) if look.is_settled => return Ok(Some(look.fingerprint)),
                Some(_) => thread::sleep(LOOK_PAUSE),
                None => break,
            }
        }
        Ok(None)
    }
}

/// The time that a change of a file gets now, since 1970. The kernel takes it from a clock that ticks every few milliseconds.
fn file_clock() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::RealtimeCoarse);
    let nanoseconds = u64::try_from(tv_nsec).unwrap_or_default();
    Duration::from_secs(u64::try_from(tv_sec).unwrap_or_default()) + Duration::from_nanos(nanoseconds)
}

/// Whether every change from `begun` on gets another time than `newest`; both are times of the clock for files. A write lasts at most `write_time`.
fn is_settled(newest: Duration, begun: Duration, write_time: Duration) -> bool {
    let granularity = if newest.subsec_nanos() == 0 { WHOLE_SECOND } else { write_time };
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
