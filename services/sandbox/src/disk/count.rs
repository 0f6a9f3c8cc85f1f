//! A count of disk space that is under way, and its result.

use super::{
    space::Space,
    walk::{Visitor, is_directory},
};
use rustix::fs::Stat;
use std::{collections::HashSet, ffi::CStr};

/// Entries that one survey counts at least, whatever the limit of the workspace is; it takes seconds.
const ENTRIES_MIN: u64 = 1_000_000;
/// Multiple of a workspace's own limit after which a survey stops counting.
const ENTRIES_FACTOR: u64 = 4;
const BLOCK_BYTES: u64 = 512;

/// The result of a survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measure {
    pub space: Space,
    /// Whether something could not be counted: directories that are too deep or too many files, or what the service may
    /// not read. Nobody knows what is there, so such a workspace counts as full.
    pub is_partial: bool,
}

/// The user of a sandbox, on the file system of its files.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileOwner {
    pub(super) device: u64,
    pub(super) uid: u32,
}

impl FileOwner {
    /// Whether a file belongs to this user and has no name. A replaced program or library of the machine has no name either, but another owner.
    pub(super) fn owns_nameless(self, stat: &Stat) -> bool {
        stat.st_nlink == 0 && stat.st_dev == self.device && stat.st_uid == self.uid
    }
}

/// A count that is under way.
pub(super) struct Count {
    pub(super) measure: Measure,
    entries_max: u64,
    /// Whose files without a name it counts.
    pub(super) owner: FileOwner,
    /// Inodes that may come up a second time.
    seen: HashSet<u64>,
}

impl Count {
    /// A count of the tree whose top is `root`. It stops after four times `inodes_max` entries, or a million.
    pub(super) fn new(root: &Stat, inodes_max: u64) -> Self {
        let mut count = Self {
            measure: Measure::default(),
            entries_max: inodes_max.saturating_mul(ENTRIES_FACTOR).max(ENTRIES_MIN),
            owner: FileOwner { device: root.st_dev, uid: root.st_uid },
            seen: HashSet::new(),
        };
        count.add_name(root);
        count
    }

    /// Counts one name of a file.
    fn add_name(&mut self, stat: &Stat) {
        self.measure.space.inodes += 1;
        if stat.st_nlink <= 1 || is_directory(stat) || self.seen.insert(stat.st_ino) {
            self.measure.space.bytes += blocks(stat);
        }
    }

    /// Counts a file that has no name, once.
    pub(super) fn add_nameless(&mut self, inode: u64, bytes: u64) {
        if self.seen.insert(inode) {
            self.measure.space.inodes += 1;
            self.measure.space.bytes += bytes;
        }
    }

    /// Counts a part of a file without a name, unless the file itself was counted.
    pub(super) fn add_mapped(&mut self, inode: u64, bytes: u64) {
        if !self.seen.contains(&inode) {
            self.measure.space.bytes += bytes;
        }
    }
}

impl Visitor for Count {
    fn is_at_its_end(&self) -> bool {
        self.measure.space.inodes >= self.entries_max
    }

    fn add(&mut self, _name: &CStr, _depth: usize, stat: &Stat) {
        self.add_name(stat);
    }

    fn skip(&mut self) {
        self.measure.is_partial = true;
    }
}

/// The space of a file; bytes.
pub(super) fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES
}
