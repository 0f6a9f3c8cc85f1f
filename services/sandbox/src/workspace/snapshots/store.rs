//! The snapshots of the workspace of a session, and the helpers that work on them.

use super::{
    record::{MergeRecord, OpenMerge},
    seed,
};
use crate::{
    disk::fingerprint::TreeLook,
    error::{Error, blocking},
    helper::{Output, Task, refused},
    isolation::launch::{Mount, give_to},
    layout::Key,
    session::state::Session,
    tree::{
        known::{KnownSnapshot, Proof, Snapshot},
        meta::{Meta, TREE},
        track::{DIRECTORY, INSIDE, TrackedFiles, check_exit, quick_task},
    },
    workspace::scratch::Scratch,
};
use domain::{ids::SessionId, limits};
use rpc::v1::ErrorCode;
use std::{collections::BTreeMap, path::PathBuf};

/// Restores the files of a snapshot.
const RESTORE: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/lfs-filter.sh"),
    include_str!("../../tree/snapshot.sh"),
    include_str!("present.sh"),
    include_str!("restore.sh")
);
/// Restores the files in which two snapshots differ.
const UNDO: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/lfs-filter.sh"),
    include_str!("../../tree/snapshot.sh"),
    include_str!("present.sh"),
    include_str!("undo.sh")
);
/// Files that could not be written or removed, and that the error names. The others are left out.
pub(super) const FILES_NAMED_MAX: usize = 20;
/// Bytes of these names. The script is killed when it prints more.
const NAMES_BYTES_MAX: usize = FILES_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);

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

    /// The directory of the workspace of another session of the tenant.
    fn directory_of(&self, session: &SessionId) -> PathBuf {
        let key = Key { tenant: self.root.key.tenant, session: session.clone() };
        self.root.shared.layout.workspace(&key)
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
        self.settle_merge(known).await?;
        // Before git reads the files: a change or a sandbox that begins meanwhile makes the snapshot count no longer.
        let mut proof = Proof { starts: self.root.starts_if_quiet(), fingerprint: None };
        if let Some(snapshot) = known.find(proof) {
            return Ok(snapshot.clone());
        }
        let tree = self.tree();
        let look = blocking("look for changes of the files", move || TreeLook::of(&tree)).await?;
        proof.fingerprint = look.map(|look| look.fingerprint);
        if let Some(snapshot) = known.find(proof) {
            return Ok(snapshot.clone());
        }
        // Without it, git looks at the next snapshot too.
        proof.fingerprint = look.filter(|look| look.is_settled).map(|look| look.fingerprint);
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

    /// Closes the open merge, if there is one, like [`Self::undo_merge`]. Files that cannot be restored are no error.
    ///
    /// # Errors
    /// `disk_full`, those of the file system and of the helper; the next call tries again.
    pub(super) async fn settle_merge(&self, known: &mut KnownSnapshot) -> Result<(), Error> {
        match self.undo_merge(known).await {
            // Another attempt would restore no further file.
            Err(error) if error.code() == ErrorCode::MergeIncomplete => {
                tracing::warn!(
                    error.code = error.code().as_str(),
                    "a merge is not undone as a whole: {error}"
                );
                Ok(())
            }
            undone => undone,
        }
    }

    /// Restores the files before an open merge that is not done: the service stopped, or the files could not be written. One that is done is closed.
    ///
    /// # Errors
    /// `merge_incomplete` if some files cannot be restored; the merge is then no longer open. `disk_full`, those of the file system and of the helper; the next
    /// call tries again.
    pub(super) async fn undo_merge(&self, known: &mut KnownSnapshot) -> Result<(), Error> {
        if !known.may_have_merge() {
            return Ok(());
        }
        let directory = self.directory();
        let mut undone = Ok(());
        if let Some(open) = OpenMerge::find(&directory).await? {
            let mut done = MergeRecord::find_of(MergeRecord::of_parent(&directory), &open.id).await?;
            if done.is_none() {
                // An earlier version of the service recorded a merge that is done only in the directory of the copy.
                done = MergeRecord::find_of(MergeRecord::of_copy(&self.directory_of(&open.copy)), &open.id)
                    .await?;
            }
            if let Some(done) = done {
                // The service stopped before it closed the merge.
                return self.end_merge(known, &open.copy, &done).await;
            }
            undone = self.restore_merged(known, open).await;
        }
        match undone {
            Err(error) if error.code() != ErrorCode::MergeIncomplete => Err(error),
            undone => {
                self.close_merge(known).await?;
                undone
            }
        }
    }

    /// Closes a merge that is done. The copy gets its record first, if it still exists: its next merge takes over what changed since, and a repeated call gets the same
    /// answer.
    ///
    /// # Errors
    /// Those of the file system; the next snapshot tries again.
    pub(super) async fn end_merge(
        &self,
        known: &mut KnownSnapshot,
        copy: &SessionId,
        done: &MergeRecord,
    ) -> Result<(), Error> {
        let directory = self.directory_of(copy);
        let written = done.write(MergeRecord::of_copy(&directory)).await;
        if directory.is_dir() {
            written?;
        }
        self.close_merge(known).await
    }

    /// Removes the records of the open merge: its files are as they stay.
    ///
    /// # Errors
    /// Those of the file system; the next snapshot tries again.
    pub(super) async fn close_merge(&self, known: &mut KnownSnapshot) -> Result<(), Error> {
        OpenMerge::remove(&self.directory()).await?;
        known.end_merge();
        Ok(())
    }

    /// Restores the files that a merge wrote.
    async fn restore_merged(&self, known: &mut KnownSnapshot, open: OpenMerge) -> Result<(), Error> {
        known.forget();
        let arguments = vec![open.before, open.after, FILES_NAMED_MAX.to_string()];
        let task = self.writer(UNDO, arguments, None);
        let output = self.root.shared.helpers.run(task, NAMES_BYTES_MAX + 1).await?;
        let incomplete = |text: String| Err(Error::refused(ErrorCode::MergeIncomplete, text));
        match output.code {
            17 => incomplete("the snapshot of the files before the merge has expired".to_owned()),
            24 => incomplete(format!(
                "these files cannot be restored and are as the merge left them: {}",
                unlike_names(&output.stdout)
            )),
            // Git cannot even look at some of them.
            128 => Err(refused(ErrorCode::MergeIncomplete, "git cannot restore the files", &output.stderr)),
            _ => check_written(output),
        }
    }

    /// Restores the files of the snapshot `wanted`. Those that only the snapshot `current` of the files has are removed.
    ///
    /// # Errors
    /// `snapshot_unknown`; `file_not_permitted`, with the names of the files that could not be written or removed; `disk_full`; those of the helper.
    pub(super) async fn restore(
        &self,
        known: &mut KnownSnapshot,
        wanted: &str,
        current: &str,
    ) -> Result<(), Error> {
        let arguments = vec![wanted.to_owned(), current.to_owned(), FILES_NAMED_MAX.to_string()];
        self.write_files(known, RESTORE, arguments, None).await
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
        let task = self.writer(script, arguments, scratch);
        check_written(self.root.shared.helpers.run(task, NAMES_BYTES_MAX + 1).await?)
    }

    /// The task of a script that writes files.
    fn writer(&self, script: &'static str, arguments: Vec<String>, scratch: Option<&Scratch>) -> Task {
        let mut mounts = vec![Mount::write(self.tree(), "/workspace"), Mount::read(self.snapshots(), INSIDE)];
        mounts.extend(scratch.map(|scratch| Mount::read(scratch.path(), "/run/sbx/scratch")));
        self.task(script, arguments, mounts)
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

/// The names that a script has printed, each with a NUL, for people.
fn unlike_names(printed: &[u8]) -> String {
    let names = printed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names: Vec<String> =
        names.map(|name| String::from_utf8_lossy(name).escape_debug().to_string()).collect();
    names.join("; ")
}

/// The exit codes of the scripts that write files.
fn check_written(output: Output) -> Result<(), Error> {
    if output.code != 0 && output.stderr.contains("No space left") {
        return Err(Error::refused(ErrorCode::DiskFull, "no space left in the workspace"));
    }
    if output.code == 24 {
        let text = format!("these files could not be written or removed: {}", unlike_names(&output.stdout));
        return Err(Error::refused(ErrorCode::FileNotPermitted, text));
    }
    if output.code == 128 {
        return Err(refused(ErrorCode::FileNotPermitted, "not every file could be written", &output.stderr));
    }
    check_exit(output, "the files could not be written").map(drop)
}
