//! Merges what a copy of the files changed into the files that it was copied from: three-way, by lines, with git.
//!
//! A file with a conflict stays as it is in our files, and a patch that the session keeps writes both versions into it. So no program of the session reads
//! conflict markers that nobody asked for, a repeated merge finds the same conflicts, and binary files and removed ones need no other rule.
//!
//! The users of two workspaces do not read each other's files: one helper packs the new objects of the copy, and another one merges them.

use super::{
    known::{KnownSnapshot, Snapshot},
    record::{self, MergeAnswer, MergeRecord},
    store::SnapshotStore,
    track::{INSIDE, SNAPSHOTS_BYTES_MAX, check_exit, parse},
};
use crate::{
    code::Code,
    disk::workspace::Purpose,
    error::Error,
    isolation::launch::{Mount, give_to},
    session::{caller::Caller, state::Session},
    workspace::{
        helper::{Output, refused},
        scratch::Scratch,
    },
};
use domain::{limits, text::is_object_id};
use rpc::v1;
use std::{path::PathBuf, sync::Arc};

const PACK: &str = concat!(include_str!("../git.sh"), include_str!("merge/pack.sh"));
const MERGE: &str =
    concat!(include_str!("../git.sh"), include_str!("../bound.sh"), include_str!("merge/merge.sh"));
const WRITE: &str = concat!(
    include_str!("../git.sh"),
    include_str!("../lfs-filter.sh"),
    include_str!("snapshot.sh"),
    include_str!("merge/write.sh")
);
/// Attempts to merge while programs change the files that it writes. Beyond it: `file_changed`.
const MERGE_TRIES_MAX: u32 = 3;
/// Files with conflicts that the answer names. The others are only counted.
const MERGE_CONFLICTS_NAMED_MAX: usize = 100;
/// Files of a copy that are too large for a snapshot: as many as track.sh lists. The others would look removed. Beyond it: `diff_too_large`.
const MERGE_LEFT_OUT_MAX: u32 = 200;
/// Longest first line of an output: a tree and three numbers.
const LINE_BYTES_MAX: usize = 128;

/// What a copy has and the files that it was copied from do not.
struct PackedCopy {
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
/// `diff_too_large`, `argument_invalid`, `epoch_stale`. The files are then as they were.
///
/// Dropped midway: the next snapshot restores the files; call it from a task.
pub async fn run(
    caller: &Caller,
    copy: &Caller,
    request: &v1::MergeCopyRequest,
) -> Result<v1::MergeCopyResponse, Error> {
    let root = &caller.root;
    if copy.root.key == root.key {
        return Err(Error::refused(Code::ArgumentInvalid, "copy_session_id must name another workspace"));
    }
    caller.session.disk.check_host()?;
    copy.check_opening().await?;
    let packed = pack(&copy.root, &request.from_commit).await?;
    root.disk.admit(Purpose::Write).await?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let merge = Merge { caller, store: &store, output_id: &request.output_id };
    let merged = merge.run(&mut known, &packed).await;
    packed.scratch.remove().await;
    merged.map(v1::MergeCopyResponse::from)
}

/// Packs what the workspace of `copy` changed.
async fn pack(copy: &Arc<Session>, from_commit: &str) -> Result<PackedCopy, Error> {
    if !from_commit.is_empty() && !is_object_id(from_commit) {
        return Err(Error::refused(Code::ArgumentInvalid, "from_commit must be the id of a commit"));
    }
    copy.disk.check_host()?;
    let mut known = copy.snapshots.lock().await;
    let store = SnapshotStore::of(copy).await?;
    let Snapshot { snapshot, left_out, left_out_paths } = store.track(&mut known).await?;
    if left_out > MERGE_LEFT_OUT_MAX {
        let text = format!(
            "{left_out} files of the copy are too large to merge, the limit is {MERGE_LEFT_OUT_MAX} such files; have git ignore them"
        );
        return Err(Error::refused(Code::DiffTooLarge, text));
    }
    let commit = if from_commit.is_empty() { store.meta.base_commit.as_str() } else { from_commit };
    let scratch = Scratch::make(copy, store.uid())?;
    let mounts = vec![
        Mount::read(store.tree(), "/workspace"),
        Mount::read(store.snapshots(), INSIDE),
        Mount::write(scratch.path(), "/run/sbx/scratch"),
    ];
    // A snapshot has expired if the script does not find it.
    let since =
        record::find_merged(&store.directory()).await?.and_then(|it| parse(&it).map(ToOwned::to_owned).ok());
    let arguments = vec![commit.to_owned(), snapshot.clone(), since.unwrap_or_default()];
    let task = store.task(PACK, arguments, mounts);
    let output = explain(copy.shared.helpers.run(task, LINE_BYTES_MAX).await?)?;
    let base = parse(String::from_utf8_lossy(&output.stdout).trim())?.to_owned();
    Ok(PackedCopy { directory: store.directory(), scratch, base, snapshot, left_out: left_out_paths })
}

/// A merge into the files of a session, whose snapshots nothing else uses meanwhile.
struct Merge<'a> {
    caller: &'a Caller,
    store: &'a SnapshotStore<'a>,
    output_id: &'a str,
}

impl Merge<'_> {
    async fn run(&self, known: &mut KnownSnapshot, packed: &PackedCopy) -> Result<MergeAnswer, Error> {
        let id = format!("{}/{}", self.caller.session.key.session, self.output_id);
        let directory = self.store.directory();
        if let Some(MergeRecord { id: newest, answer: Some(answer), .. }) =
            MergeRecord::find(&directory).await?
            && newest == id
        {
            return Ok(answer);
        }
        let mut tries = 1;
        loop {
            let before = self.store.track(known).await?.snapshot;
            let merged = self.merge(packed, &before).await?;
            // Held until the last file is written and the answer is recorded: a successor finds either all of it or nothing.
            let _right = self.caller.hold().await?;
            let after = merged.snapshot.clone();
            let open = MergeRecord { id: id.clone(), before, after, answer: None };
            match self.write(known, &open).await {
                // A program wrote one of the files since the snapshot.
                Err(error) if error.code() == Code::FileChanged && tries < MERGE_TRIES_MAX => tries += 1,
                Err(error) => return Err(error),
                Ok(()) => {
                    let answer = self.answer(merged, packed).await?;
                    MergeRecord { answer: Some(answer.clone()), ..open }.write(&directory).await?;
                    // Last: if the service dies before, the next merge finds the same changes on both sides.
                    record::write_merged(&packed.directory, &packed.snapshot).await?;
                    return Ok(answer);
                }
            }
        }
    }

    /// Merges the trees. No file of the workspace changes.
    async fn merge(&self, packed: &PackedCopy, ours: &str) -> Result<MergeResult, Error> {
        let store = self.store;
        let scratch = Scratch::make(store.root, store.uid())?;
        let facts = store.root.shared.launcher.facts();
        for name in ["pack", "left"] {
            let file = scratch.path().join(name);
            let lent = tokio::fs::copy(packed.scratch.path().join(name), &file).await;
            lent.and_then(|_| give_to(facts, store.uid(), &file))
                .map_err(Error::io("lend the objects of a copy"))?;
        }
        let patch_bytes_max = usize::try_from(limits::EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let arguments = vec![
            packed.base.clone(),
            ours.to_owned(),
            packed.snapshot.clone(),
            (SNAPSHOTS_BYTES_MAX >> 10).to_string(),
            MERGE_CONFLICTS_NAMED_MAX.to_string(),
            // One byte more than the limit shows that the patch is truncated.
            (patch_bytes_max + 1).to_string(),
        ];
        let mounts = vec![
            Mount::read(store.tree(), "/workspace"),
            Mount::write(store.snapshots(), INSIDE),
            Mount::write(scratch.path(), "/run/sbx/scratch"),
        ];
        let names = MERGE_CONFLICTS_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);
        let task = store.task(MERGE, arguments, mounts);
        let output = store.root.shared.helpers.run(task, LINE_BYTES_MAX + names + patch_bytes_max + 1).await;
        scratch.remove().await;
        let output = explain(output?)?;
        let broken = || refused(Code::Internal, "the files could not be merged", &output.stderr);
        MergeResult::parse(&output.stdout).ok_or_else(broken)
    }

    /// Writes the merged files, all or none.
    async fn write(&self, known: &mut KnownSnapshot, record: &MergeRecord) -> Result<(), Error> {
        if record.before == record.after {
            return Ok(());
        }
        let directory = self.store.directory();
        record.write(&directory).await?;
        let arguments = vec![record.before.clone(), record.after.clone()];
        match self.store.write_files(known, WRITE, arguments, None).await {
            // Git has written nothing.
            Err(error) if error.code() == Code::FileChanged => {
                MergeRecord::remove(&directory).await?;
                Err(error)
            }
            Err(error) => {
                if let Err(left) = self.store.undo_merge(known).await {
                    tracing::warn!(
                        error.code = left.code().name(),
                        "a merge is undone by the next snapshot: {left}"
                    );
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Keeps the patch of the conflicts among the outputs of the session.
    async fn answer(&self, merged: MergeResult, packed: &PackedCopy) -> Result<MergeAnswer, Error> {
        let MergeResult { files_changed, conflicts, conflicts_total, patch, .. } = merged;
        let mut conflicts_path = String::new();
        if !patch.is_empty() && patch.len() as u64 <= limits::EXEC_OUTPUT_BYTES_MAX {
            let output_id = format!("{}-conflicts", self.output_id);
            conflicts_path = self.caller.session.execs.keep(&output_id, patch).await?;
        }
        let left_out = packed.left_out.clone();
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
            Code::BaseCommitMissing,
            "the copy no longer has the commit that it began with",
            &output.stderr,
        )),
        22 => Err(refused(
            Code::SnapshotUnknown,
            "git cannot merge the files; the snapshot that the copy began with may have expired",
            &output.stderr,
        )),
        _ => check_exit(output, "the files could not be merged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
