//! The snapshots of one workspace, and the helpers that work on them.

use super::seed::{self, DIRECTORY};
use crate::{
    code::Code,
    error::Error,
    isolation::launch::{Mount, give_to},
    session::state::Session,
    workspace::{
        helper::{Output, Queue, Task, refused},
        meta::{Meta, TREE},
        scratch::Scratch,
    },
};
use domain::limits;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Larger untracked files are not in a snapshot; bytes. OpenCode's limit: such files are data.
const SNAPSHOT_FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Larger files are not in a snapshot although their repository tracks them; bytes. To read one of this size takes git a second.
const SNAPSHOT_TRACKED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Paths of such files that the response names. The others are only counted.
const SNAPSHOT_LEFT_OUT_NAMED_MAX: usize = 20;
/// How long a snapshot is kept after it was last returned; milliseconds. OpenCode's seven days. Beyond it: `snapshot_unknown`.
const SNAPSHOT_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Time between two removals of old snapshots of one workspace; milliseconds. It reads all of them.
const SNAPSHOT_SWEEP_MS: u64 = 24 * 60 * 60 * 1_000;
/// Disk space for the snapshots of one workspace, without the objects of its repository; bytes. As much as the files of
/// a workspace may take. Beyond it: `snapshots_full`.
const SNAPSHOTS_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// The snapshots, seen from a helper.
pub(super) const INSIDE: &str = "/run/sbx/snapshots";
const TRACK: &str = concat!(
    include_str!("../git.sh"),
    include_str!("../bound.sh"),
    include_str!("snapshot.sh"),
    include_str!("track.sh")
);
/// Restores the files of a snapshot.
pub(super) const RESTORE: &str =
    concat!(include_str!("../git.sh"), include_str!("snapshot.sh"), include_str!("restore.sh"));
/// A line with a snapshot and a number, and the paths that follow it. The script is killed when it prints more.
const TRACK_ANSWER_BYTES_MAX: usize = 128 + SNAPSHOT_LEFT_OUT_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);
const MS_PER_MINUTE: u64 = 60_000;

/// A new snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Its name.
    pub(super) snapshot: String,
    /// Files that are too large.
    pub(super) left_out: u32,
    /// The first of them.
    pub(super) left_out_paths: Vec<String>,
}

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

    pub(super) fn tree(&self) -> PathBuf {
        self.root.shared.layout.workspace(&self.root.key).join(TREE)
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.root.shared.layout.workspace(&self.root.key).join(DIRECTORY)
    }

    pub(super) fn task(&self, script: &'static str, arguments: Vec<String>, mounts: Vec<Mount>) -> Task {
        let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
        Task {
            script,
            arguments,
            mounts,
            queue: Queue::Quick,
            ..Task::new(self.root.key.tenant, self.uid(), time_limit)
        }
    }

    /// The caller holds the lock.
    pub(super) async fn track(&self) -> Result<Snapshot, Error> {
        seed::make_directory(self.root, self.uid())?;
        let format = if self.meta.base_commit.len() == 64 { "sha256" } else { "sha1" };
        let arguments = vec![
            format.to_owned(),
            SNAPSHOT_FILE_BYTES_MAX.to_string(),
            (SNAPSHOTS_BYTES_MAX >> 10).to_string(),
            (SNAPSHOT_KEPT_MS / MS_PER_MINUTE).to_string(),
            (SNAPSHOT_SWEEP_MS / MS_PER_MINUTE).to_string(),
            SNAPSHOT_LEFT_OUT_NAMED_MAX.to_string(),
            SNAPSHOT_TRACKED_BYTES_MAX.to_string(),
        ];
        let mounts = vec![Mount::read(self.tree(), "/workspace"), Mount::write(self.snapshots(), INSIDE)];
        let task = self.task(TRACK, arguments, mounts);
        let output = self.root.shared.helpers.run(task, TRACK_ANSWER_BYTES_MAX).await?;
        let output = check_exit(output, "the files could not be kept")?;
        read_tracked(&output.stdout)
            .ok_or_else(|| refused(Code::Internal, "the files could not be kept", &output.stderr))
    }

    pub(super) async fn write_files(
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

/// The exit codes of the scripts.
pub(super) fn check_exit(output: Output, text: &str) -> Result<Output, Error> {
    match output.code {
        0 => Ok(output),
        17 => {
            let text = "the workspace has no such snapshot; it may have expired";
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
pub(super) fn parse(snapshot: &str) -> Result<&str, Error> {
    let is_hash =
        matches!(snapshot.len(), 40 | 64) && snapshot.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_hash {
        return Ok(snapshot);
    }
    let head = domain::text::head(snapshot, 80);
    Err(Error::refused(Code::SnapshotUnknown, format!("{head:?} is not a snapshot")))
}

pub(super) fn read_tracked(stdout: &[u8]) -> Option<Snapshot> {
    let end = stdout.iter().position(|byte| *byte == b'\n')?;
    let (snapshot, left_out) = std::str::from_utf8(&stdout[..end]).ok()?.split_once(' ')?;
    let paths = stdout[end + 1..].split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(Snapshot {
        snapshot: parse(snapshot).ok()?.to_owned(),
        left_out: left_out.trim().parse().ok()?,
        left_out_paths: paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
    })
}
