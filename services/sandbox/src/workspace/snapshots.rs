//! Earlier states of a workspace's files: kept, compared, brought back. Each is a tree in a git directory of our own beside
//! the files, which no tenant's program sees; git reads and writes the files in helper sandboxes only.
//!
//! A helper that reads the files may write the snapshots, and one that writes files may not: a program that moves links
//! about meanwhile cannot lead git into its own directory.

pub mod apply;
mod differences;
pub mod export;
pub(super) mod seed;

use super::{
    Meta, TREE, branch,
    helper::{Lane, Output, Task},
    refused,
    scratch::Scratch,
};
use crate::{
    code::Code,
    error::Error,
    isolation::launch::{Mount, give_to},
    session::Session,
};
use domain::limits;
use rpc::v1;
use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Untracked files above this are not in a snapshot; bytes. OpenCode's number: larger ones are data, not work.
const SNAPSHOT_FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Paths of such files that are named to the caller.
const SNAPSHOT_LEFT_OUT_NAMED_MAX: usize = 20;
/// How long a snapshot is kept after it was given last; milliseconds. OpenCode's seven days.
const SNAPSHOT_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Time between two removals of old snapshots of one workspace; milliseconds. It reads all of them.
const SNAPSHOT_SWEEP_MS: u64 = 24 * 60 * 60 * 1_000;
/// What the snapshots of one workspace may take on disk, beside what its repository has anyway; bytes. As much as the files
/// of a workspace may take.
const SNAPSHOTS_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// Their place beside the tree.
pub(super) const DIRECTORY: &str = "snapshots";
const INSIDE: &str = "/run/sbx/snapshots";
const TRACK: &str = concat!(
    include_str!("git.sh"),
    include_str!("bound.sh"),
    include_str!("snapshots/snapshot.sh"),
    include_str!("snapshots/track.sh")
);
const DIFF: &str =
    concat!(include_str!("git.sh"), include_str!("snapshots/snapshot.sh"), include_str!("snapshots/diff.sh"));
const RESTORE: &str = concat!(
    include_str!("git.sh"),
    include_str!("snapshots/snapshot.sh"),
    include_str!("snapshots/restore.sh")
);
const REVERT: &str = concat!(
    include_str!("git.sh"),
    include_str!("snapshots/snapshot.sh"),
    include_str!("snapshots/revert.sh")
);
/// A line with a snapshot and a number, and the paths that follow it.
const TRACK_ANSWER_BYTES_MAX: usize = 128 + SNAPSHOT_LEFT_OUT_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);
const MS_PER_MINUTE: u64 = 60_000;

/// A snapshot that was made now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tracked {
    /// Its name.
    snapshot: String,
    /// Untracked files that are too large.
    left_out: u32,
    /// The first of them.
    left_out_paths: Vec<String>,
}

/// Keeps the files as they are, and says on which branch they are.
///
/// # Errors
/// `workspace_missing`, `snapshots_full`, `disk_full`.
///
/// Dropped midway: not kept; call it from a task.
pub async fn track(root: &Arc<Session>) -> Result<v1::TrackSnapshotResponse, Error> {
    let _snapshots = root.snapshots.lock().await;
    let place = Place::of(root).await?;
    let Tracked { snapshot, left_out, left_out_paths } = place.track().await?;
    let branch = branch::find(place.tree()).await.unwrap_or_default();
    Ok(v1::TrackSnapshotResponse { snapshot, left_out, left_out_paths, branch })
}

/// Gives what changed between two snapshots, or since one.
///
/// # Errors
/// `snapshot_unknown`, and those of [`track`] when it compares with now.
pub async fn diff(
    root: &Arc<Session>,
    request: &v1::DiffSnapshotsRequest,
) -> Result<v1::DiffSnapshotsResponse, Error> {
    let from = parse(&request.from_snapshot)?;
    let bytes_max = match request.bytes_max as usize {
        0 => limits::DIFF_BYTES_MAX,
        asked => asked.min(limits::DIFF_BYTES_MAX),
    };
    let _snapshots = root.snapshots.lock().await;
    let place = Place::of(root).await?;
    let to_snapshot = match request.to_snapshot.as_str() {
        "" => place.track().await?.snapshot,
        named => parse(named)?.to_owned(),
    };
    let lists = limits::DIFF_STATS_BYTES_MAX;
    let arguments =
        vec![from.to_owned(), to_snapshot.clone(), lists.to_string(), (bytes_max + 1).to_string()];
    let mounts = vec![Mount::read(place.tree(), "/workspace"), Mount::read(place.snapshots(), INSIDE)];
    let task = place.task(DIFF, arguments, mounts);
    let output = root.shared.helpers.run(task, lists * 2 + bytes_max + 1 + 128).await?;
    let output = checked(output, "the snapshots could not be compared")?;
    let broken = || refused(Code::Internal, "the snapshots could not be compared", &output.stderr);
    let (files, truncated) = differences::read(&output.stdout, lists, bytes_max).ok_or_else(broken)?;
    Ok(v1::DiffSnapshotsResponse { files, truncated, to_snapshot })
}

/// Makes the files what they were, and gives a snapshot of what they were until now. `epoch` is that of `session`, which
/// works in the workspace of `root`.
///
/// # Errors
/// `epoch_stale`, `snapshot_unknown`, `disk_full`, `file_not_permitted`, and those of [`track`].
///
/// Dropped midway: some files are restored; call it from a task.
pub async fn restore(
    (session, root): (&Session, &Arc<Session>),
    epoch: u64,
    snapshot: &str,
) -> Result<String, Error> {
    let snapshot = parse(snapshot)?;
    let _snapshots = root.snapshots.lock().await;
    let place = Place::of(root).await?;
    let previous = place.track().await?.snapshot;
    // Held until the last file is written: whoever takes the session over finds all files or none restored.
    let _right = session.hold(epoch).await?;
    place.write_files(RESTORE, vec![snapshot.to_owned()], None).await?;
    Ok(previous)
}

/// Makes single files what they were, and gives a snapshot of what they were until now; see [`restore`].
///
/// # Errors
/// As [`restore`]; `argument_invalid` for too many paths, `path_outside_workspace`, `path_invalid`.
pub async fn revert(
    (session, root): (&Session, &Arc<Session>),
    epoch: u64,
    files: Vec<v1::FilesOfSnapshot>,
) -> Result<String, Error> {
    let lists = lists_of_paths(files)?;
    let _snapshots = root.snapshots.lock().await;
    let place = Place::of(root).await?;
    let previous = place.track().await?.snapshot;
    if lists.is_empty() {
        return Ok(previous);
    }
    let scratch = Scratch::make(root, place.uid())?;
    let written = place.write_lists(&scratch, &lists);
    let done = match written {
        Ok(()) => {
            let _right = session.hold(epoch).await?;
            place.write_files(REVERT, vec![previous.clone()], Some(&scratch)).await
        }
        Err(error) => Err(error),
    };
    scratch.remove().await;
    done.map(|()| previous)
}

/// The workspace whose snapshots are meant.
struct Place<'a> {
    root: &'a Session,
    meta: Meta,
}

impl<'a> Place<'a> {
    async fn of(root: &'a Session) -> Result<Self, Error> {
        Ok(Self { root, meta: root.workspace().await? })
    }

    fn uid(&self) -> u32 {
        self.root.shared.uid(self.meta.slot)
    }

    fn tree(&self) -> PathBuf {
        self.root.shared.layout.workspace(&self.root.key).join(TREE)
    }

    fn snapshots(&self) -> PathBuf {
        self.root.shared.layout.workspace(&self.root.key).join(DIRECTORY)
    }

    fn task(&self, script: &'static str, arguments: Vec<String>, mounts: Vec<Mount>) -> Task {
        let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
        Task { script, arguments, mounts, lane: Lane::Quick, ..Task::new(self.uid(), time_limit) }
    }

    /// Needs the lock.
    async fn track(&self) -> Result<Tracked, Error> {
        seed::make_directory(self.root, self.uid())?;
        let format = if self.meta.base_commit.len() == 64 { "sha256" } else { "sha1" };
        let arguments = vec![
            format.to_owned(),
            SNAPSHOT_FILE_BYTES_MAX.to_string(),
            (SNAPSHOTS_BYTES_MAX >> 10).to_string(),
            (SNAPSHOT_KEPT_MS / MS_PER_MINUTE).to_string(),
            (SNAPSHOT_SWEEP_MS / MS_PER_MINUTE).to_string(),
            SNAPSHOT_LEFT_OUT_NAMED_MAX.to_string(),
        ];
        let mounts = vec![Mount::read(self.tree(), "/workspace"), Mount::write(self.snapshots(), INSIDE)];
        let task = self.task(TRACK, arguments, mounts);
        let output = self.root.shared.helpers.run(task, TRACK_ANSWER_BYTES_MAX).await?;
        let output = checked(output, "the files could not be kept")?;
        read_tracked(&output.stdout)
            .ok_or_else(|| refused(Code::Internal, "the files could not be kept", &output.stderr))
    }

    async fn write_files(
        &self,
        script: &'static str,
        arguments: Vec<String>,
        scratch: Option<&Scratch>,
    ) -> Result<(), Error> {
        let mut mounts = vec![Mount::write(self.tree(), "/workspace"), Mount::read(self.snapshots(), INSIDE)];
        mounts.extend(scratch.map(|scratch| Mount::read(scratch.path(), "/run/sbx/scratch")));
        let output = self.root.shared.helpers.run(self.task(script, arguments, mounts), 0).await?;
        if output.code != 0 && output.stderr.contains("No space left") {
            return Err(Error::refused(Code::DiskFull, "no space left in the workspace"));
        }
        if output.code == 128 {
            // Git could not remove or write some of them; the others are as they were asked to be.
            return Err(refused(Code::FileNotPermitted, "not every file could be written", &output.stderr));
        }
        checked(output, "the files could not be written").map(drop)
    }

    /// One file for each snapshot, with the paths that are to be taken from it.
    fn write_lists(&self, scratch: &Scratch, lists: &BTreeMap<String, Vec<u8>>) -> Result<(), Error> {
        let facts = self.root.shared.launcher.facts();
        let write = |(snapshot, paths): (&String, &Vec<u8>)| {
            let file = scratch.path().join(snapshot);
            std::fs::write(&file, paths)?;
            give_to(facts, self.uid(), &file)
        };
        lists.iter().try_for_each(write).map_err(Error::io("write the list of files"))
    }
}

/// The exit codes of the scripts.
fn checked(output: Output, text: &str) -> Result<Output, Error> {
    match output.code {
        0 => Ok(output),
        17 => {
            let text = "the workspace has no such snapshot, or has it no longer";
            Err(Error::refused(Code::SnapshotUnknown, text))
        }
        18 => Err(Error::refused(Code::DiskFull, "no space left for a snapshot of the workspace")),
        19 | 137 => {
            let text = format!(
                "the snapshots of the workspace take more than {} GiB; old ones are removed after {} days",
                SNAPSHOTS_BYTES_MAX >> 30,
                SNAPSHOT_KEPT_MS / (24 * 60 * MS_PER_MINUTE)
            );
            Err(Error::refused(Code::SnapshotsFull, text))
        }
        _ => Err(refused(Code::Internal, text, &output.stderr)),
    }
}

/// A snapshot's name becomes part of a path and of a command.
fn parse(snapshot: &str) -> Result<&str, Error> {
    let is_hash =
        matches!(snapshot.len(), 40 | 64) && snapshot.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_hash {
        return Ok(snapshot);
    }
    let shown = domain::text::head(snapshot, 80);
    Err(Error::refused(Code::SnapshotUnknown, format!("{shown:?} is no name of a snapshot")))
}

fn read_tracked(stdout: &[u8]) -> Option<Tracked> {
    let end = stdout.iter().position(|byte| *byte == b'\n')?;
    let (snapshot, left_out) = std::str::from_utf8(&stdout[..end]).ok()?.split_once(' ')?;
    let paths = stdout[end + 1..].split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(Tracked {
        snapshot: parse(snapshot).ok()?.to_owned(),
        left_out: left_out.trim().parse().ok()?,
        left_out_paths: paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
    })
}

/// Paths by snapshot, each ended by NUL; a path that is named again is left out.
fn lists_of_paths(files: Vec<v1::FilesOfSnapshot>) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let (mut seen, mut lists) = (HashSet::new(), BTreeMap::<String, Vec<u8>>::new());
    for v1::FilesOfSnapshot { snapshot, paths } in files {
        let snapshot = parse(&snapshot)?;
        for path in paths {
            let path = relative(&path)?;
            if seen.insert(path.to_owned()) {
                let list = lists.entry(snapshot.to_owned()).or_default();
                list.extend_from_slice(path.as_bytes());
                list.push(0);
            }
        }
    }
    if seen.len() > limits::SNAPSHOT_FILES_MAX {
        let text = format!("at most {} files can be reverted at once", limits::SNAPSHOT_FILES_MAX);
        return Err(Error::refused(Code::ArgumentInvalid, text));
    }
    Ok(lists)
}

/// A path below /workspace as git names it.
fn relative(path: &str) -> Result<&str, Error> {
    let shown = || domain::text::head(path, 200);
    let rest = match path.strip_prefix("/workspace/") {
        Some(rest) => rest,
        None if path.starts_with('/') => {
            let text = format!("{} is outside the workspace", shown());
            return Err(Error::refused(Code::PathOutsideWorkspace, text));
        }
        None => path,
    };
    let is_plain = |part: &str| !matches!(part, "" | "." | ".." | ".git");
    if rest.len() <= limits::PATH_BYTES_MAX && !rest.contains('\0') && rest.split('/').all(is_plain) {
        return Ok(rest);
    }
    Err(Error::refused(Code::PathInvalid, format!("{:?} is no path of a file", shown())))
}

#[cfg(test)]
mod tests;
