//! A helper that takes a snapshot of files.

use super::known::Snapshot;
use crate::{
    error::Error,
    helper::{Helpers, Output, Queue, Task, refused},
    isolation::launch::Mount,
};
use domain::{ids::TenantId, limits};
use rpc::v1::ErrorCode;
use std::{path::PathBuf, time::Duration};

/// The directory of the snapshots, in that of the workspace.
pub(crate) const DIRECTORY: &str = "snapshots";
/// The patterns of files that git ignores in addition to those of the repository, in that directory.
pub(crate) const EXCLUDED: &str = "excluded";
/// The objects of Git LFS that the session was given, each by its SHA-256, in that directory.
pub(crate) const LFS_OBJECTS: &str = "lfs";
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
pub(crate) const SNAPSHOTS_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// The snapshots, seen from a helper.
pub(crate) const INSIDE: &str = "/run/sbx/snapshots";
const TRACK: &str = concat!(
    include_str!("../helper/git.sh"),
    include_str!("../helper/bound.sh"),
    include_str!("../helper/lfs-filter.sh"),
    include_str!("../helper/nested.sh"),
    include_str!("snapshot.sh"),
    include_str!("track.sh")
);
/// A line with a snapshot and a number, and the paths that follow it. The script is killed when it prints more.
const TRACK_ANSWER_BYTES_MAX: usize = 128 + SNAPSHOT_LEFT_OUT_NAMED_MAX * (limits::PATH_BYTES_MAX + 1);
const MS_PER_MINUTE: u64 = 60_000;

/// Files and their snapshots, as the host has them, and their user.
pub(crate) struct TrackedFiles {
    pub(crate) tenant: TenantId,
    pub(crate) uid: u32,
    pub(crate) tree: PathBuf,
    pub(crate) snapshots: PathBuf,
    /// Of the commits of the repository: `sha1` or `sha256`.
    pub(crate) object_format: &'static str,
}

impl TrackedFiles {
    /// Takes a snapshot. The caller lets nothing else work with the snapshots meanwhile.
    ///
    /// # Errors
    /// `snapshots_full`, `disk_full`, those of the helper.
    pub(crate) async fn track(self, helpers: &Helpers) -> Result<Snapshot, Error> {
        let arguments = vec![
            self.object_format.to_owned(),
            SNAPSHOT_FILE_BYTES_MAX.to_string(),
            (SNAPSHOTS_BYTES_MAX >> 10).to_string(),
            (SNAPSHOT_KEPT_MS / MS_PER_MINUTE).to_string(),
            (SNAPSHOT_SWEEP_MS / MS_PER_MINUTE).to_string(),
            SNAPSHOT_LEFT_OUT_NAMED_MAX.to_string(),
            SNAPSHOT_TRACKED_BYTES_MAX.to_string(),
        ];
        let mounts = vec![Mount::read(self.tree, "/workspace"), Mount::write(self.snapshots, INSIDE)];
        let task = Task { script: TRACK, arguments, mounts, ..quick_task(self.tenant, self.uid) };
        let output = helpers.run(task, TRACK_ANSWER_BYTES_MAX).await?;
        let output = check_exit(output, "the files could not be kept")?;
        read_tracked(&output.stdout)
            .ok_or_else(|| refused(ErrorCode::Internal, "the files could not be kept", &output.stderr))
    }
}

/// A task for which a turn waits, to be filled in.
pub(crate) fn quick_task(tenant: TenantId, uid: u32) -> Task {
    let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
    Task { queue: Queue::Quick, ..Task::new(tenant, uid, time_limit) }
}

/// The exit codes of the scripts.
pub(crate) fn check_exit(output: Output, text: &str) -> Result<Output, Error> {
    match output.code {
        0 => Ok(output),
        17 => {
            let text = "the workspace has no such snapshot; it may have expired";
            Err(Error::refused(ErrorCode::SnapshotUnknown, text))
        }
        18 => Err(Error::refused(ErrorCode::DiskFull, "no space left for a snapshot of the workspace")),
        19 | 137 => {
            let text = format!(
                "the snapshots of the workspace take more than {} GiB; old ones are removed after {} days",
                SNAPSHOTS_BYTES_MAX >> 30,
                SNAPSHOT_KEPT_MS / (24 * 60 * MS_PER_MINUTE)
            );
            Err(Error::refused(ErrorCode::SnapshotsFull, text))
        }
        23 => Err(refused(
            ErrorCode::FileChanged,
            "the files changed while they were to be written",
            &output.stderr,
        )),
        _ => Err(refused(ErrorCode::Internal, text, &output.stderr)),
    }
}

/// A snapshot's name becomes part of a path and of a command.
pub(crate) fn parse(snapshot: &str) -> Result<&str, Error> {
    if domain::text::is_object_id(snapshot) {
        return Ok(snapshot);
    }
    let head = domain::text::head(snapshot, 80);
    Err(Error::refused(ErrorCode::SnapshotUnknown, format!("{head:?} is not a snapshot")))
}

pub(crate) fn read_tracked(stdout: &[u8]) -> Option<Snapshot> {
    let end = stdout.iter().position(|byte| *byte == b'\n')?;
    let (snapshot, left_out) = std::str::from_utf8(&stdout[..end]).ok()?.split_once(' ')?;
    let paths = stdout[end + 1..].split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(Snapshot {
        snapshot: parse(snapshot).ok()?.to_owned(),
        left_out: left_out.trim().parse().ok()?,
        left_out_paths: paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
    })
}
