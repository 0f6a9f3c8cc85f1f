//! Merges what a copy of the files changed into the files that it was copied from: three-way, by lines, with git.
//!
//! A file with a conflict stays as it is in our files, and a patch that the session keeps writes both versions into it. So no program of the session reads
//! conflict markers that nobody asked for, a repeated merge finds the same conflicts, and binary files and removed ones need no other rule.
//!
//! The users of two workspaces do not read each other's files: one helper packs the new objects of the copy, and another one merges them.

use super::{
    record::{MergeAnswer, MergeId, MergeRecord, OpenMerge},
    store::SnapshotStore,
};
use crate::{
    disk::workspace::Purpose,
    error::Error,
    helper::{Output, refused},
    isolation::launch::{Mount, give_to},
    session::{caller::Caller, state::Session},
    tree::{
        known::{KnownSnapshot, Snapshot},
        track::{INSIDE, SNAPSHOTS_BYTES_MAX, check_exit, parse},
    },
    workspace::scratch::Scratch,
};
use domain::{ids::SessionId, limits, text::is_object_id};
use rpc::v1::{self, ErrorCode};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

const PACK: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("merge/pack.sh")
);
const MERGE: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/bound.sh"),
    include_str!("merge/merge.sh")
);
const WRITE: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/lfs-filter.sh"),
    include_str!("../../tree/snapshot.sh"),
    include_str!("present.sh"),
    include_str!("merge/write.sh")
);
/// Attempts to merge while programs change the files that it writes. Beyond it: `file_changed`.
const MERGE_TRIES_MAX: u32 = 3;
/// Files with conflicts that the answer names. The others are only counted.
const MERGE_CONFLICTS_NAMED_MAX: usize = 100;
/// Files of a copy that are too large for a snapshot: as many as track.sh lists. The others would look removed. Beyond it: `diff_too_large`.
const MERGE_LEFT_OUT_MAX: u32 = 200;
/// The files that a helper of the copy leaves for one of our user.
const HANDED_OVER: [&str; 2] = ["pack", "left"];
/// Longest first line of an output: a tree and three numbers.
const LINE_BYTES_MAX: usize = 128;

/// What a copy has and the files that it was copied from do not.
struct PackedCopy {
    /// The session that it belongs to.
    session: SessionId,
    /// The directory of its workspace.
    directory: PathBuf,
    /// Has the new objects, and the list of the files that are too large.
    scratch: Scratch,
    /// The tree since which the copy has changed: that of its last merge, or the one that it began with.
    base: String,
    /// The snapshot of its files now.
    snapshot: String,
    /// The first of the files that are too large.
    left_out: Vec<String>,
}

/// What git made of three trees.
#[derive(Debug, PartialEq, Eq)]
struct MergeResult {
    snapshot: String,
    files_changed: u32,
    conflicts: Vec<String>,
    conflicts_total: u32,
    /// Writes the conflicts into the merged files. Incomplete if it is longer than an output.
    patch: Vec<u8>,
}

/// Merges what the workspace of `copy` changed since a commit into the files of `caller`, once for each id. A repeated call gets the same answer.
///
/// # Errors
/// `workspace_missing`, `base_commit_missing`, `snapshot_unknown`, `file_changed`, `file_not_permitted`, `disk_full`, `limit_disk`, `snapshots_full`,
/// `diff_too_large`, `argument_invalid`, `epoch_stale`. The files are then as they were. `merge_incomplete`: some of them are not.
///
/// Dropped midway: the next snapshot restores the files; call it from a task.
pub async fn run(
    caller: &Caller,
    copy: &Caller,
    request: &v1::MergeCopyRequest,
) -> Result<v1::MergeCopyResponse, Error> {
    let root = &caller.root;
    if copy.root.key == root.key {
        return Err(Error::refused(
            ErrorCode::ArgumentInvalid,
            "copy_session_id must name another workspace",
        ));
    }
    copy.check_opening().await?;
    let id = MergeId {
        workspace: root.key.session.clone(),
        opening: root.workspace().await?.opening,
        session: caller.session.key.session.clone(),
        output_id: request.output_id.clone(),
    };
    // Before everything else that may fail: what was merged once stays merged.
    let directory = root.shared.layout.workspace(&copy.root.key);
    if let Some(record) = find_done(root, &directory, &id).await? {
        return Ok(record.answer.into());
    }
    caller.session.disk.check_host()?;
    root.disk.admit(Purpose::Write).await?;
    let packed = pack(&copy.root, &id, &request.from_commit).await?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    store.meta.require(Some(id.opening))?;
    let merge = Merge { caller, store: &store, id: &id, packed: &packed };
    let merged = merge.run(&mut known).await;
    packed.scratch.remove().await;
    merged.map(v1::MergeCopyResponse::from)
}

/// Finds the record of a merge that an earlier call has done. The service may have stopped before it closed that merge.
async fn find_done(root: &Session, copy: &Path, id: &MergeId) -> Result<Option<MergeRecord>, Error> {
    let mut known = root.snapshots.lock().await;
    SnapshotStore::of(root).await?.settle_merge(&mut known).await?;
    MergeRecord::find_of(MergeRecord::of_copy(copy), id).await
}

/// Packs what the workspace of `copy` changed and `id` is to take over.
async fn pack(copy: &Arc<Session>, id: &MergeId, from_commit: &str) -> Result<PackedCopy, Error> {
    if !from_commit.is_empty() && !is_object_id(from_commit) {
        return Err(Error::refused(ErrorCode::ArgumentInvalid, "from_commit must be the id of a commit"));
    }
    copy.disk.check_host()?;
    let mut known = copy.snapshots.lock().await;
    let store = SnapshotStore::of(copy).await?;
    let Snapshot { snapshot, left_out, left_out_paths } = store.track(&mut known).await?;
    if left_out > MERGE_LEFT_OUT_MAX {
        let text = format!(
            "{left_out} files of the copy are too large to merge, the limit is {MERGE_LEFT_OUT_MAX} such files; have git ignore them"
        );
        return Err(Error::refused(ErrorCode::DiffTooLarge, text));
    }
    let commit = if from_commit.is_empty() { store.meta.base_commit.as_str() } else { from_commit };
    let scratch = Scratch::make(copy, store.uid())?;
    let mounts = vec![
        Mount::read(store.tree(), "/workspace"),
        Mount::read(store.snapshots(), INSIDE),
        Mount::write(scratch.path(), "/run/sbx/scratch"),
    ];
    let merged = MergeRecord::find(MergeRecord::of_copy(&store.directory()))
        .await?
        .filter(|merged| merged.id.has_files_of(id));
    // A snapshot has expired if the script does not find it.
    let since = merged.map(|merged| merged.snapshot).unwrap_or_default();
    let limit = (SNAPSHOTS_BYTES_MAX >> 10).to_string();
    let arguments = vec![commit.to_owned(), snapshot.clone(), since, limit];
    let task = store.task(PACK, arguments, mounts);
    let output = copy.shared.helpers.run(task, LINE_BYTES_MAX).await?;
    if matches!(output.code, 19 | 137) {
        let text = format!("the changes of the copy take more than {} GiB", SNAPSHOTS_BYTES_MAX >> 30);
        return Err(Error::refused(ErrorCode::SnapshotsFull, text));
    }
    let base = parse(String::from_utf8_lossy(&explain(output)?.stdout).trim())?.to_owned();
    let session = copy.key.session.clone();
    Ok(PackedCopy {
        session,
        directory: store.directory(),
        scratch,
        base,
        snapshot,
        left_out: left_out_paths,
    })
}

/// A merge into the files of a session, whose snapshots nothing else uses meanwhile.
struct Merge<'a> {
    caller: &'a Caller,
    store: &'a SnapshotStore<'a>,
    id: &'a MergeId,
    packed: &'a PackedCopy,
}

impl Merge<'_> {
    async fn run(&self, known: &mut KnownSnapshot) -> Result<MergeAnswer, Error> {
        // The first call may have been at work when the loop repeated it.
        self.store.settle_merge(known).await?;
        let record = MergeRecord::find_of(MergeRecord::of_copy(&self.packed.directory), self.id).await?;
        if let Some(record) = record {
            return Ok(record.answer);
        }
        let copy = self.hand_over()?;
        let mut tries = 1;
        let merged = loop {
            match self.attempt(known, &copy).await {
                // A program wrote one of the files since the snapshot.
                Err(error) if error.code() == ErrorCode::FileChanged && tries < MERGE_TRIES_MAX => tries += 1,
                ended => break ended,
            }
        };
        copy.remove().await;
        merged
    }

    /// Moves what the helper of the copy wrote to a directory of the user of our files.
    fn hand_over(&self) -> Result<Scratch, Error> {
        let store = self.store;
        let copy = Scratch::make(store.root, store.uid())?;
        let facts = store.root.shared.launcher.facts();
        for name in HANDED_OVER {
            let file = copy.path().join(name);
            let moved = fs::rename(self.packed.scratch.path().join(name), &file);
            moved
                .and_then(|()| give_to(facts, store.uid(), &file))
                .map_err(Error::io("hand over the objects of a copy"))?;
        }
        Ok(copy)
    }

    /// Merges with the files as they are now. An error leaves them so, except for `merge_incomplete`.
    async fn attempt(&self, known: &mut KnownSnapshot, copy: &Scratch) -> Result<MergeAnswer, Error> {
        let before = self.store.track(known).await?.snapshot;
        let merged = self.merge(copy, &before).await?;
        // Held until the last file is written and the answer is stored: a successor finds either all of it or nothing.
        let _right = self.caller.hold().await?;
        let after = merged.snapshot.clone();
        // Before the first file is written, because it may fail.
        let answer = self.answer(merged).await?;
        let open = OpenMerge { id: self.id.clone(), copy: self.packed.session.clone(), before, after };
        self.write(known, &open).await?;
        let snapshot = self.packed.snapshot.clone();
        let record = MergeRecord { id: self.id.clone(), snapshot, answer };
        // With this write the merge is done, whatever happens to the copy.
        if let Err(error) = record.write(MergeRecord::of_parent(&self.store.directory())).await {
            return Err(self.undo(known, error).await);
        }
        if let Err(error) = self.store.end_merge(known, &open.copy, &record).await {
            tracing::warn!(
                error.code = error.code().as_str(),
                "a merge is closed by the next snapshot: {error}"
            );
        }
        Ok(record.answer)
    }

    /// Merges the trees. No file of the workspace changes.
    async fn merge(&self, copy: &Scratch, ours: &str) -> Result<MergeResult, Error> {
        let store = self.store;
        let scratch = Scratch::make(store.root, store.uid())?;
        let patch_bytes_max = usize::try_from(limits::EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let arguments = vec![
            self.packed.base.clone(),
            ours.to_owned(),
            self.packed.snapshot.clone(),
            (SNAPSHOTS_BYTES_MAX >> 10).to_string(),
            MERGE_CONFLICTS_NAMED_MAX.to_string(),
            // One byte more than the limit shows that the patch is truncated.
            (patch_bytes_max + 1).to_string(),
        ];
        let mounts = vec![
            Mount::read(store.tree(), "/workspace"),
            Mount::write(store.snapshots(), INSIDE),
            Mount::read(copy.path(), "/run/sbx/copy"),
            Mount::write(scratch.path(), "/run/sbx/scratch"),
        ];
        let names = MERGE_CONFLICTS_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);
        let task = store.task(MERGE, arguments, mounts);
        let output = store.root.shared.helpers.run(task, LINE_BYTES_MAX + names + patch_bytes_max + 1).await;
        scratch.remove().await;
        let output = explain(output?)?;
        let broken = || refused(ErrorCode::Internal, "the files could not be merged", &output.stderr);
        MergeResult::parse(&output.stdout).ok_or_else(broken)
    }

    /// Writes the merged files, all or none.
    async fn write(&self, known: &mut KnownSnapshot, open: &OpenMerge) -> Result<(), Error> {
        known.begin_merge();
        open.write(&self.store.directory()).await?;
        if open.before == open.after {
            return Ok(());
        }
        let arguments = vec![open.before.clone(), open.after.clone()];
        match self.store.write_files(known, WRITE, arguments, None).await {
            // Git has written nothing.
            Err(error) if error.code() == ErrorCode::FileChanged => {
                self.store.close_merge(known).await?;
                Err(error)
            }
            Err(error) => Err(self.undo(known, error).await),
            Ok(()) => Ok(()),
        }
    }

    /// Restores the files after an error, and gives the error for the caller: another one if the files are not as they were.
    async fn undo(&self, known: &mut KnownSnapshot, error: Error) -> Error {
        let Err(left) = self.store.undo_merge(known).await else { return error };
        tracing::warn!(
            error.code = left.code().as_str(),
            "a merge is not undone: {}; {}",
            error.chain(),
            left.chain()
        );
        let mut rest = left.to_status().message().to_owned();
        if left.code() != ErrorCode::MergeIncomplete {
            // The merge is still open.
            rest = format!("the files are not restored yet, and the next snapshot tries again: {rest}");
        }
        Error::refused(ErrorCode::MergeIncomplete, format!("{}; {rest}", error.to_status().message()))
    }

    /// The answer. Keeps the patch of the conflicts among the outputs of the session.
    async fn answer(&self, merged: MergeResult) -> Result<MergeAnswer, Error> {
        let MergeResult { files_changed, conflicts, conflicts_total, patch, .. } = merged;
        let mut conflicts_path = String::new();
        if !patch.is_empty() && patch.len() as u64 <= limits::EXEC_OUTPUT_BYTES_MAX {
            let output_id = format!("{}-conflicts", self.id.output_id);
            conflicts_path = self.caller.session.execs.keep(&output_id, patch).await?;
        }
        let left_out = self.packed.left_out.clone();
        Ok(MergeAnswer { files_merged: files_changed, conflicts, conflicts_total, conflicts_path, left_out })
    }
}

impl MergeResult {
    /// Parses a line with a tree, two numbers and a length; names of that length; and a patch.
    fn parse(output: &[u8]) -> Option<Self> {
        let end = output.iter().position(|byte| *byte == b'\n')?;
        let fields: Vec<&str> = std::str::from_utf8(&output[..end]).ok()?.split_whitespace().collect();
        let [snapshot, files_changed, conflicts_total, names] = fields[..] else { return None };
        let (names, patch) = output[end + 1..].split_at_checked(names.parse().ok()?)?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Some(Self {
            snapshot: parse(snapshot).ok()?.to_owned(),
            files_changed: files_changed.parse().ok()?,
            conflicts: names.map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            conflicts_total: conflicts_total.parse().ok()?,
            patch: patch.to_vec(),
        })
    }
}

/// The exit codes of the scripts that pack and merge.
fn explain(output: Output) -> Result<Output, Error> {
    match output.code {
        14 => Err(refused(
            ErrorCode::BaseCommitMissing,
            "the copy no longer has the commit that it began with",
            &output.stderr,
        )),
        22 => Err(refused(
            ErrorCode::SnapshotUnknown,
            "git cannot merge the files; the snapshot that the copy began with may have expired",
            &output.stderr,
        )),
        _ => check_exit(output, "the files could not be merged"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::process::Command;

    /// Makes a repository and the snapshots of its files, and prints a commit and a snapshot with another 100 KB.
    const PREPARE: &str = "set -e; git init -q workspace; cd workspace; git config user.name a; git config user.email a@b; echo a > a; git add a; \
                           git commit -qm a; head -c 100000 /dev/urandom > b; git add b; tree=$(git write-tree); mkdir ../snapshots; \
                           cp -r .git ../snapshots/git; mkdir ../snapshots/git/refs/snapshots; : > ../snapshots/git/refs/snapshots/$tree; \
                           echo $(git rev-parse HEAD) $tree";

    #[test]
    fn the_objects_of_a_copy_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let prepared = Command::new("bash").args(["-c", PREPARE]).current_dir(&directory).output().unwrap();
        let printed = String::from_utf8(prepared.stdout).unwrap();
        let (commit, snapshot) = printed.trim().split_once(' ').unwrap();
        let at = directory.path().display().to_string();
        let script = PACK.replace("/workspace", &format!("{at}/workspace")).replace("/run/sbx", &at);
        // This is no helper: `kill` may only look for processes, not end them.
        let script = format!("kill() {{ [ \"$1\" = -0 ] && command kill \"$@\"; }}\n{script}");
        let scratch = directory.path().join("scratch");
        for (limit_kib, code) in [("50", 19), ("10000", 0)] {
            fs::create_dir(&scratch).unwrap();
            let arguments = ["-c", &script, "pack", commit, snapshot, "", limit_kib];
            let ended = Command::new("bash").args(arguments).output().unwrap();
            assert_eq!(ended.status.code(), Some(code), "{limit_kib}: {ended:?}");
            fs::remove_dir_all(&scratch).unwrap();
        }
    }

    #[test]
    fn an_answer_of_git_is_read_and_a_broken_one_is_not() {
        let tree = "a".repeat(40);
        let merged = MergeResult::parse(format!("{tree} 3 2 8\na b\nc\0d\0patch").as_bytes());
        let want = MergeResult {
            snapshot: tree.clone(),
            files_changed: 3,
            conflicts: vec!["a b\nc".to_owned(), "d".to_owned()],
            conflicts_total: 2,
            patch: b"patch".to_vec(),
        };
        assert_eq!(merged, Some(want));
        for broken in ["", "x 1 1 0\n", &format!("{tree} 1 1\n"), &format!("{tree} 1 1 9\nab\0")] {
            assert_eq!(MergeResult::parse(broken.as_bytes()), None, "{broken:?}");
        }
    }
}
