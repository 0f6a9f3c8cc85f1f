//! The newest snapshot, for as long as the files cannot have changed since.

use std::time::{Duration, Instant};

/// Longest time for which the newest snapshot stands for the files without a look at them; milliseconds. A look renews the age of the snapshot,
/// so this must be far less than the time for which snapshots are kept.
const SNAPSHOT_KNOWN_MS: u64 = 60 * 60 * 1_000;

/// A snapshot of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::workspace) struct Snapshot {
    /// Its name.
    pub(super) snapshot: String,
    /// Files that are too large.
    pub(super) left_out: u32,
    /// The first of them.
    pub(super) left_out_paths: Vec<String>,
}

/// What the service knows of the files of a workspace. Only sandboxes and helpers change files. A helper that does so makes the service forget the snapshot,
/// and a snapshot counts only while no sandbox has been started in the workspace.
#[derive(Debug, Default)]
pub(crate) struct KnownSnapshot {
    newest: Option<NewestSnapshot>,
}

#[derive(Debug)]
struct NewestSnapshot {
    snapshot: Snapshot,
    /// The sandboxes that had been started in the workspace when it was taken. All of them had ended.
    starts: u64,
    taken: Instant,
}

impl KnownSnapshot {
    /// Gives the snapshot that the files still have, after `starts` sandboxes.
    pub(super) fn find(&self, starts: u64) -> Option<&Snapshot> {
        let is_valid = |known: &&NewestSnapshot| {
            known.starts == starts && known.taken.elapsed() < Duration::from_millis(SNAPSHOT_KNOWN_MS)
        };
        self.newest.as_ref().filter(is_valid).map(|known| &known.snapshot)
    }

    /// Keeps a snapshot that was taken after `starts` sandboxes had ended.
    pub(in crate::workspace) fn keep(&mut self, snapshot: Snapshot, starts: u64) {
        self.newest = Some(NewestSnapshot { snapshot, starts, taken: Instant::now() });
    }

    /// Forgets the snapshot, because the files may change.
    pub(in crate::workspace) fn forget(&mut self) {
        self.newest = None;
    }
}
