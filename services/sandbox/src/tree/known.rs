//! The newest snapshot, for as long as the files have not changed since.

use crate::{disk::fingerprint::Fingerprint, error::blocking};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// Longest time for which the newest snapshot stands for the files without a look at them; milliseconds. A look renews the age of the snapshot,
/// so this must be far less than the time for which snapshots are kept.
const SNAPSHOT_KNOWN_MS: u64 = 60 * 60 * 1_000;

/// A snapshot of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Its name.
    pub(crate) snapshot: String,
    /// Files that are too large.
    pub(crate) left_out: u32,
    /// The first of them.
    pub(crate) left_out_paths: Vec<String>,
}

/// What the service knows of the files of a workspace. Only sandboxes and helpers change files. A helper that does so makes the service forget the snapshot.
/// A snapshot counts while no sandbox has been started in the workspace, and afterwards while the files keep their fingerprint.
#[derive(Debug, Default)]
pub(crate) struct KnownSnapshot {
    newest: Option<NewestSnapshot>,
    /// Whether no merge into the files is open. `false`: the service merges, or it has not looked since it started.
    has_no_merge: bool,
}

#[derive(Debug)]
struct NewestSnapshot {
    snapshot: Snapshot,
    proof: Proof,
    taken: Instant,
}

/// What shows that files are as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Proof {
    /// The sandboxes that have been started in the workspace. `None`: one of them still runs.
    pub(crate) starts: Option<u64>,
    /// The fingerprint of the files.
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Proof {
    /// Whether the files are the same as at `other`.
    fn shows_files_of(self, other: Self) -> bool {
        let no_program_ran = self.starts.is_some() && self.starts == other.starts;
        no_program_ran || (self.fingerprint.is_some() && self.fingerprint == other.fingerprint)
    }
}

impl KnownSnapshot {
    /// Gives the snapshot that the files still have, as `proof` shows.
    pub(crate) fn find(&self, proof: Proof) -> Option<&Snapshot> {
        let is_valid = |known: &&NewestSnapshot| {
            proof.shows_files_of(known.proof)
                && known.taken.elapsed() < Duration::from_millis(SNAPSHOT_KNOWN_MS)
        };
        self.newest.as_ref().filter(is_valid).map(|known| &known.snapshot)
    }

    /// Keeps a snapshot of the files. `proof` is older than it.
    pub(crate) fn keep(&mut self, snapshot: Snapshot, proof: Proof) {
        self.newest = Some(NewestSnapshot { snapshot, proof, taken: Instant::now() });
    }

    /// Adds the fingerprint of the files in `tree` to their newest snapshot, while a sandbox starts in them and no program runs yet. `starts` are the sandboxes
    /// before it. Without a fingerprint, git would look at the files after the first command, also if that has only read them.
    pub(crate) async fn add_fingerprint(&mut self, starts: Option<u64>, tree: PathBuf) {
        let before = Proof { starts, fingerprint: None };
        let Some(newest) = self.newest.as_mut().filter(|newest| newest.proof == before && starts.is_some())
        else {
            return;
        };
        let taken =
            blocking("look at the files before their first command", move || Fingerprint::of_still(&tree));
        newest.proof.fingerprint = taken.await.unwrap_or_else(|error| {
            tracing::debug!("the newest snapshot gets no fingerprint: {}", error.chain());
            None
        });
    }

    /// Whether every look at the files must first look for an open merge.
    pub(crate) fn may_have_merge(&self) -> bool {
        !self.has_no_merge
    }

    /// Notes that a merge begins.
    pub(crate) fn begin_merge(&mut self) {
        self.has_no_merge = false;
    }

    /// Notes that no merge is open.
    pub(crate) fn end_merge(&mut self) {
        self.has_no_merge = true;
    }

    /// Forgets the snapshot, because the files may change.
    pub(crate) fn forget(&mut self) {
        self.newest = None;
    }
}
