//! Snapshots of a session's files, which the sandbox takes and compares. If a snapshot cannot be taken, the turn continues
//! without it, and an event says so.

use crate::process::{deps::Deps, sandbox::Identity};
use domain::{conversation::message::FileDiff, limits};
use rpc::v1;
use std::time::Duration;
use tonic::{Code, Response, Status};

/// The state of the files at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesState {
    /// The id of the snapshot.
    pub(crate) snapshot: String,
    /// The branch that is checked out.
    pub(crate) branch: Option<String>,
}

/// The sandbox did not return a snapshot, or the difference between two, although the session has files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotMissing;

/// Takes a snapshot of the files. Waits at most `patience`. `None`: the session has no files yet.
pub(crate) async fn track(
    deps: &Deps,
    identity: &Identity,
    patience: Duration,
) -> Result<Option<FilesState>, SnapshotMissing> {
    let mut client = deps.sandbox.client();
    let request = v1::TrackSnapshotRequest { fence: identity.fence() };
    let tracked = response(tokio::time::timeout(patience, client.track_snapshot(request)).await)?;
    let Some(tracked) = tracked else { return Ok(None) };
    if tracked.left_out > 0 {
        tracing::debug!("{} files are too large for snapshots", tracked.left_out);
    }
    let branch = (!tracked.branch.is_empty()).then_some(tracked.branch);
    Ok(Some(FilesState { snapshot: tracked.snapshot, branch }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotPair<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
}

/// Lists the differences between two snapshots. `patch_bytes` bounds the patches of all files together.
pub(crate) async fn diff(
    deps: &Deps,
    identity: &Identity,
    pair: SnapshotPair<'_>,
    patch_bytes: u32,
) -> Result<Vec<FileDiff>, SnapshotMissing> {
    let request = v1::DiffSnapshotsRequest {
        fence: identity.fence(),
        from_snapshot: pair.from.to_owned(),
        to_snapshot: pair.to.to_owned(),
        bytes_max: patch_bytes,
    };
    let mut client = deps.sandbox.client();
    let patience = Duration::from_millis(limits::SNAPSHOT_WAIT_MS);
    let differ = response(tokio::time::timeout(patience, client.diff_snapshots(request)).await)?;
    Ok(differ.ok_or(SnapshotMissing)?.files.into_iter().map(Into::into).collect())
}

/// The response, unless the sandbox refused or was too late. `None`: there is nothing to take or to compare.
fn response<T>(
    answer: Result<Result<Response<T>, Status>, tokio::time::error::Elapsed>,
) -> Result<Option<T>, SnapshotMissing> {
    match answer {
        Ok(Ok(response)) => Ok(Some(response.into_inner())),
        // A session without files has no snapshots, and a loop that was taken over notices that at its next write.
        Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => {
            tracing::debug!("no snapshot: {}", status.message());
            Ok(None)
        }
        Ok(Err(status)) => {
            metrics::counter!("flotilla_snapshots_missing_total").increment(1);
            tracing::warn!("cannot take or compare a snapshot: {}", status.message());
            Err(SnapshotMissing)
        }
        Err(_) => {
            metrics::counter!("flotilla_snapshots_missing_total").increment(1);
            tracing::warn!("a snapshot takes too long; the turn continues without it");
            Err(SnapshotMissing)
        }
    }
}
