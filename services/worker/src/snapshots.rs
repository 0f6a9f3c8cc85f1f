//! Snapshots of a session's files, as a loop asks the sandbox for them. What cannot be had is done without: no turn fails
//! for want of its history.

use crate::{deps::Deps, sandbox::Identity};
use domain::{limits, message::FileDiff};
use rpc::v1;
use std::time::Duration;
use tonic::{Code, Response, Status};

/// The files at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// The name of their state.
    pub(crate) snapshot: String,
    /// The branch that they are on.
    pub(crate) branch: Option<String>,
}

/// Keeps the files as they are now. Waits at most `patience`.
pub(crate) async fn track(deps: &Deps, identity: &Identity, patience: Duration) -> Option<Look> {
    let mut client = deps.sandbox.client();
    let request = v1::TrackSnapshotRequest { fence: identity.fence() };
    let tracked = had(tokio::time::timeout(patience, client.track_snapshot(request)).await)?;
    if tracked.left_out > 0 {
        tracing::debug!("{} files are too large for snapshots", tracked.left_out);
    }
    let branch = (!tracked.branch.is_empty()).then_some(tracked.branch);
    Some(Look { snapshot: tracked.snapshot, branch })
}

/// What differs between two states. `patch_bytes` is for the patches of all files together.
pub(crate) async fn diff(
    deps: &Deps,
    identity: &Identity,
    (from, to): (&str, &str),
    patch_bytes: u32,
) -> Option<Vec<FileDiff>> {
    let request = v1::DiffSnapshotsRequest {
        fence: identity.fence(),
        from_snapshot: from.to_owned(),
        to_snapshot: to.to_owned(),
        bytes_max: patch_bytes,
    };
    let mut client = deps.sandbox.client();
    let patience = Duration::from_millis(limits::SNAPSHOT_WAIT_MS);
    let differ = had(tokio::time::timeout(patience, client.diff_snapshots(request)).await)?;
    Some(differ.files.into_iter().map(Into::into).collect())
}

/// What was answered, unless it was a refusal or came too late.
fn had<T>(answer: Result<Result<Response<T>, Status>, tokio::time::error::Elapsed>) -> Option<T> {
    match answer {
        Ok(Ok(response)) => Some(response.into_inner()),
        // A session without files has no states of them; whoever was taken over is told by its next write.
        Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => {
            tracing::debug!("no snapshot: {}", status.message());
            None
        }
        Ok(Err(status)) => {
            metrics::counter!("flotilla_snapshots_missing_total").increment(1);
            tracing::warn!("a snapshot cannot be had: {}", status.message());
            None
        }
        Err(_) => {
            metrics::counter!("flotilla_snapshots_missing_total").increment(1);
            tracing::warn!("a snapshot takes too long: the turn goes on without it");
            None
        }
    }
}
