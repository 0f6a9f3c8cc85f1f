//! The operations on snapshots: keep one, compare two, restore the files of one.

use super::{
    differences,
    store::{FILES_NAMED_MAX, SnapshotStore},
};
use crate::{
    disk::workspace::Purpose,
    error::Error,
    helper::refused,
    isolation::launch::Mount,
    session::{caller::Caller, state::Session},
    tree::{
        known::Snapshot,
        track::{INSIDE, check_exit, parse},
    },
    workspace::{branch, scratch::Scratch},
};
use domain::limits;
use rpc::v1::{self, ErrorCode};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const DIFF: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../tree/snapshot.sh"),
    include_str!("diff.sh")
);
const REVERT: &str = concat!(
    include_str!("../../helper/git.sh"),
    include_str!("../../helper/lfs-filter.sh"),
    include_str!("../../tree/snapshot.sh"),
    include_str!("present.sh"),
    include_str!("revert.sh")
);

/// Keeps the files as they are, and returns their branch.
///
/// # Errors
/// `workspace_missing`, `snapshots_full`, `disk_full`.
///
/// Dropped midway: not kept; call it from a task.
pub async fn track(root: &Arc<Session>) -> Result<v1::TrackSnapshotResponse, Error> {
    root.disk.check_host()?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let Snapshot { snapshot, left_out, left_out_paths } = store.track(&mut known).await?;
    let branch = branch::find(store.tree()).await.unwrap_or_default();
    Ok(v1::TrackSnapshotResponse { snapshot, left_out, left_out_paths, branch })
}

/// Gives the changes between two snapshots, or from one to the current files.
///
/// # Errors
/// `snapshot_unknown`, and those of [`track`] when it compares with the current files.
pub async fn diff(
    root: &Arc<Session>,
    request: &v1::DiffSnapshotsRequest,
) -> Result<v1::DiffSnapshotsResponse, Error> {
    let from = parse(&request.from_snapshot)?;
    let bytes_max = match request.bytes_max as usize {
        0 => limits::DIFF_BYTES_MAX,
        requested => requested.min(limits::DIFF_BYTES_MAX),
    };
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let to_snapshot = match request.to_snapshot.as_str() {
        "" => {
            root.disk.check_host()?;
            store.track(&mut known).await?.snapshot
        }
        named => parse(named)?.to_owned(),
    };
    let lists = limits::DIFF_STATS_BYTES_MAX;
    let arguments =
        vec![from.to_owned(), to_snapshot.clone(), lists.to_string(), (bytes_max + 1).to_string()];
    let mounts = vec![Mount::read(store.tree(), "/workspace"), Mount::read(store.snapshots(), INSIDE)];
    let task = store.task(DIFF, arguments, mounts);
    let output = root
        .shared
        .helpers
        .run(task, lists * 2 + differences::LEFT_OUT_BYTES_MAX + bytes_max + 1 + 128)
        .await?;
    let output = check_exit(output, "the snapshots could not be compared")?;
    let broken = || refused(ErrorCode::Internal, "the snapshots could not be compared", &output.stderr);
    let (files, truncated) = differences::read(&output.stdout, lists, bytes_max).ok_or_else(broken)?;
    Ok(v1::DiffSnapshotsResponse { files, truncated, to_snapshot })
}

/// Restores the files of a snapshot, and returns a snapshot of the files before. The caller must not be stale.
///
/// # Errors
/// `epoch_stale`, `snapshot_unknown`, `disk_full`, `limit_disk`, `file_not_permitted`, and those of [`track`].
///
/// Dropped midway: some files are restored; call it from a task.
pub async fn restore(caller: &Caller, snapshot: &str) -> Result<String, Error> {
    let root = &caller.root;
    let snapshot = parse(snapshot)?;
    root.disk.admit(Purpose::Write).await?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let previous = store.track(&mut known).await?.snapshot;
    // Held until the last file is written: a successor finds either all files restored or none.
    let _right = caller.hold().await?;
    store.restore(&mut known, snapshot, &previous).await?;
    Ok(previous)
}

/// Restores single files, and returns a snapshot of the files before; see [`restore`].
///
/// # Errors
/// As [`restore`]; `argument_invalid` for too many paths, `path_outside_workspace`, `path_invalid`.
pub async fn revert(caller: &Caller, files: Vec<v1::FilesOfSnapshot>) -> Result<String, Error> {
    let root = &caller.root;
    let lists = lists_of_paths(files)?;
    root.disk.admit(Purpose::Write).await?;
    let mut known = root.snapshots.lock().await;
    let store = SnapshotStore::of(root).await?;
    let previous = store.track(&mut known).await?.snapshot;
    if lists.is_empty() {
        return Ok(previous);
    }
    let scratch = Scratch::make(root, store.uid())?;
    let written = store.write_lists(&scratch, &lists);
    let result = match written {
        Ok(()) => {
            let _right = caller.hold().await?;
            let arguments = vec![previous.clone(), FILES_NAMED_MAX.to_string()];
            store.write_files(&mut known, REVERT, arguments, Some(&scratch)).await
        }
        Err(error) => Err(error),
    };
    scratch.remove().await;
    result.map(|()| previous)
}

/// Paths by snapshot, each terminated by NUL; a repeated path is ignored.
pub(super) fn lists_of_paths(files: Vec<v1::FilesOfSnapshot>) -> Result<BTreeMap<String, Vec<u8>>, Error> {
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
        let text = format!("too many files to revert at once; the limit is {}", limits::SNAPSHOT_FILES_MAX);
        return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    }
    Ok(lists)
}

/// A path below /workspace as git names it.
pub(super) fn relative(path: &str) -> Result<&str, Error> {
    let head = || domain::text::head(path, 200);
    let rest = match path.strip_prefix("/workspace/") {
        Some(rest) => rest,
        None if path.starts_with('/') => {
            let text = format!("{} is outside the workspace", head());
            return Err(Error::refused(ErrorCode::PathOutsideWorkspace, text));
        }
        None => path,
    };
    let is_plain = |part: &str| !matches!(part, "" | "." | ".." | ".git");
    if rest.len() <= limits::PATH_BYTES_MAX && !rest.contains('\0') && rest.split('/').all(is_plain) {
        return Ok(rest);
    }
    Err(Error::refused(ErrorCode::PathInvalid, format!("{:?} is not a valid file path", head())))
}
