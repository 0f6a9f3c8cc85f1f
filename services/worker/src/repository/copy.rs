//! A copy of the files of a workspace, from which the workspace of a subtask starts: a bundle in Postgres. If the worker dies before the subtask exists,
//! its successor makes another copy. Upkeep removes the first one, as it removes every bundle from which no session starts.

use super::workspace::Workspace;
use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_missing, lost},
};
use domain::{
    limits,
    session::{FilesCopy, Source},
};
use rpc::v1::{self, ErrorCode, ExportHistory};
use std::time::Duration;
use store::tenant::bundle_writer::BundleWriter;
use tonic::{Response, Status};

/// Longest copy: a helper may take two minutes, and its output must reach Postgres.
const COPY_WAIT: Duration = Duration::from_secs(5 * 60);

/// Copies the current files of a workspace. Gives what another workspace starts from: the copy, or the same source if there are no files yet.
///
/// # Errors
/// `workspace_lost`, `bundle_too_large`, `store_unavailable`, `copy_timeout`; other refusals of the sandbox.
///
/// Dropped midway: what is stored of the copy is removed within a day.
pub(crate) async fn copy_files(
    deps: &Deps,
    identity: &Identity,
    workspace: &Workspace,
) -> Result<Source, Status> {
    let copied = tokio::time::timeout(COPY_WAIT, export(deps, identity, workspace)).await;
    let late = || rpc::status::error(ErrorCode::CopyTimeout, "copying the files took too long");
    match copied.unwrap_or_else(|_| Err(late())) {
        Err(status) if is_missing(&status) && !workspace.is_recorded().await? => {
            Ok(workspace.source().clone())
        }
        Err(status) if is_missing(&status) => Err(lost()),
        copied => copied,
    }
}

/// Stores the current files as a bundle.
// The gateway does the same for a fork that a client asks for: `gateway::app::history::fork`.
async fn export(deps: &Deps, identity: &Identity, workspace: &Workspace) -> Result<Source, Status> {
    let request = v1::ExportWorkspaceRequest {
        tenant_id: identity.tenant.to_string(),
        session_id: identity.session.to_string(),
        workspace_session_id: identity.workspace.to_string(),
        workspace_opening: identity.fence().and_then(|fence| fence.workspace_opening),
        history: ExportHistory::Whole.into(),
        ..Default::default()
    };
    // The first piece comes, or the refusal, when the snapshot is taken.
    let begun = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move {
            let mut pieces = client.export_workspace(request).await?.into_inner();
            let first = pieces.message().await?;
            Ok(Response::new((first, pieces)))
        }
    });
    let (mut next, mut pieces) = begun.await?;
    let mut bundle = BundleWriter::begin(&deps.store, identity.tenant).await.map_err(unstored)?;
    let (mut commit, mut install) = (String::new(), None);
    while let Some(piece) = next {
        if commit.is_empty() {
            commit = piece.commit;
            install = Some(piece.install_key).filter(|key| !key.is_empty());
        }
        if bundle.size_bytes() + piece.data.len() as u64 > limits::BUNDLE_BYTES_MAX {
            let text = format!("the copy is too large; the limit is {} bytes", limits::BUNDLE_BYTES_MAX);
            return Err(rpc::status::error(ErrorCode::BundleTooLarge, text));
        }
        bundle.add(&piece.data).await.map_err(unstored)?;
        next = pieces.message().await?;
    }
    let bundle = bundle.close().await.map_err(unstored)?;
    let bundle = bundle.publish(None).await.map_err(unstored)?;
    Ok(workspace.source().copied(&identity.workspace, FilesCopy { bundle, commit, install }))
}

fn unstored(error: store::error::Error) -> Status {
    tracing::warn!(error = &error as &dyn std::error::Error, "cannot store a copy of files");
    rpc::status::error(ErrorCode::StoreUnavailable, "the database does not answer; try again later")
}
