//! The snapshots of the workspace of a session, and the helpers that work on them.

use super::{
    known::{KnownSnapshot, Proof, Snapshot},
    record::MergeRecord,
    seed,
    track::{DIRECTORY, INSIDE, TrackedFiles, check_exit, quick_task},
};
use crate::{
    code::Code,
    disk::fingerprint::Fingerprint,
    error::{Error, blocking},
    isolation::launch::{Mount, give_to},
    session::state::Session,
    workspace::{
        helper::{Task, refused},
        meta::{Meta, TREE},
        scratch::Scratch,
    },
};
use std::{collections::BTreeMap, path::PathBuf};

/// Restores the files of a snapshot.
pub(super) const RESTORE: &str = concat!(
    include_str!("../git.sh"),
    include_str!("../lfs-filter.sh"),
    include_str!("snapshot.sh"),
    include_str!("restore.sh")
);
/// Restores the files in which two snapshots differ.
const UNDO: &str = concat!(
    include_str!("../git.sh"),
    include_str!("../lfs-filter.sh"),
    include_str!("snapshot.sh"),
    include_str!("undo.sh")
);

/// The snapshots of one workspace.
pub(super) struct SnapshotStore<'a> {
    pub(super) root: &'a Session,
    pub(super) meta: Meta,
}

impl<'a> SnapshotStore<'a> {
    pub(super) async fn of(root: &'a Session) -> Result<Self, Error> {
        Ok(Self { root, meta: root.workspace().await? })
    }

    pub(super) fn uid(&self) -> u32 {
        self.root.shared.uid(self.meta.slot)
    }

    /// The directory of the workspace.
    pub(super) fn directory(&self) -> PathBuf {
        self.root.shared.layout.workspace(&self.root.key)
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.directory().join(TREE)
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.directory().join(DIRECTORY)
    }

    pub(super) fn task(&self, script: &'static str, arguments: Vec<String>, mounts: Vec<Mount>) -> Task {
        Task { script, arguments, mounts, ..quick_task(self.root.key.tenant, self.uid()) }
    }

    /// Takes a snapshot, unless the files have not changed since the newest one. A merge that did not end is undone first.
    pub(super) async fn track(&self, known: &mut KnownSnapshot) -> Result<Snapshot, Error> {
        self.undo_merge(known).await?;
        // Before git reads the files: a change or a sandbox that begins meanwhile makes the snapshot count no longer.
        let mut proof = Proof { starts: self.root.starts_if_quiet(), fingerprint: None };
        if let Some(snapshot) = known.find(proof) {
            return Ok(snapshot.clone());
        }
        let tree = self.tree();
        let fingerprint = blocking("look for changes of the files", move || Fingerprint::of(&tree));
        proof.fingerprint = fingerprint.await?;
        if let Some(snapshot) = known.find(proof) {
            return Ok(snapshot.clone());
        }
        known.forget();
        seed::make_directory(self.root, self.uid())?;
        let files = TrackedFiles {
            tenant: self.root.key.tenant,
            uid: self.uid(),
            tree: self.tree(),
            snapshots: self.snapshots(),
            object_format: if self.meta.base_commit.len() == 64 { "sha256" } else { "sha1" },
        };
        let snapshot = files.track(&self.root.shared.helpers).await?;
        known.keep(snapshot.clone(), proof);
        Ok(snapshot)
    }

    /// Restores the files before a merge that did not end: the service stopped, or the files could not be written.
    ///
    /// # Errors
    /// `disk_full`, those of the helper; the next call tries again.
    pub(super) async fn undo_merge(&self, known: &mut KnownSnapshot) -> Result<(), Error> {
        let directory = self.directory();
        let Some(MergeRecord { before, after, answer: None, .. }) = MergeRecord::find(&directory).await?
        else {
            return Ok(());
        };
        match self.write_files(known, UNDO, vec![before, after], None).await {
            // Another attempt would restore no further file.
            Err(error) if matches!(error.code(), Code::SnapshotUnknown | Code::FileNotPermitted) => {
                tracing::warn!(error.code = error.code().name(), "a merge is not undone as a whole: {error}");
            }
            undone => undone?,
        }
        MergeRecord::remove(&directory).await
    }

    /// Runs a script that writes files.
    pub(super) async fn write_files(
        &self,
        known: &mut KnownSnapshot,
        script: &'static str,
        arguments: Vec<String>,
        scratch: Option<&Scratch>,
    ) -> Result<(), Error> {
        known.forget();
        let mut mounts = vec![Mount::write(self.tree(), "/workspace"), Mount::read(self.snapshots(), INSIDE)];
        mounts.extend(scratch.map(|scratch| Mount::read(scratch.path(), "/run/sbx/scratch")));
        let output = self.root.shared.helpers.run(self.task(script, arguments, mounts), 0).await?;
        if output.code != 0 && output.stderr.contains("No space left") {
            return Err(Error::refused(Code::DiskFull, "no space left in the workspace"));
        }
        if output.code == 128 {
            // Git could not remove or write some files; the others are restored.
            return Err(refused(Code::FileNotPermitted, "not every file could be written", &output.stderr));
        }
        check_exit(output, "the files could not be written").map(drop)
    }

    /// Writes one file for each snapshot, with the paths to restore from it.
    pub(super) fn write_lists(
        &self,
        scratch: &Scratch,
        lists: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), Error> {
        let facts = self.root.shared.launcher.facts();
        let write = |(snapshot, paths): (&String, &Vec<u8>)| {
            let file = scratch.path().join(snapshot);
            std::fs::write(&file, paths)?;
            give_to(facts, self.uid(), &file)
        };
        lists.iter().try_for_each(write).map_err(Error::io("write the list of files"))
    }
}
