//! The files of a session that has had no prompt yet: made for a person as its first prompt would have.

use crate::{
    grpc::{from_sandbox, from_store},
    state::State,
};
use domain::{
    ids::{SessionId, TenantId},
    session::Origin,
};
use futures::{StreamExt as _, stream};
use rpc::{
    status::code_of,
    v1::{self, open_workspace_request::Part},
};
use tonic::Status;

/// Does what needs the files of a session that works in its own; they are made first if they never were.
///
/// # Errors
/// Those of `call`; `workspace_missing` when a loop had the files and lost them; what the sandbox refuses; `store_unavailable`,
/// `sandbox_unavailable`.
pub(crate) async fn with_files<T, C: Future<Output = Result<T, Status>>>(
    state: &State,
    (tenant, session): (TenantId, &SessionId),
    call: impl Fn() -> C,
) -> Result<T, Status> {
    match call().await {
        Err(missing) if code_of(&missing).as_deref() == Some("workspace_missing") => {
            open(state, tenant, session, missing).await?;
            call().await
        }
        done => done,
    }
}

/// Opens the workspace of a session that works in its own. With epoch 0 only one that no loop ever had is opened: of any other
/// the loop knows more, so `missing` is the answer.
///
/// # Errors
/// `missing`; what the sandbox refuses; `store_unavailable`, `sandbox_unavailable`.
async fn open(state: &State, tenant: TenantId, session: &SessionId, missing: Status) -> Result<(), Status> {
    let source = state.store.get_session(tenant, session).await.map_err(from_store)?.source;
    let (git_url, bundle) = match source.origin {
        Origin::Empty => (String::new(), None),
        Origin::GitUrl(url) => (url, None),
        Origin::Bundle(id) => (String::new(), Some(id)),
    };
    let (tenant_id, session_id) = (tenant.to_string(), session.to_string());
    let header = v1::WorkspaceHeader {
        fence: Some(v1::Fence { tenant_id, session_id, epoch: 0, workspace_session_id: String::new() }),
        git_url,
        bundle: bundle.is_some(),
        revision: source.revision.unwrap_or_default(),
        uncommitted: source.uncommitted,
    };
    let store = state.store.clone();
    let pieces = stream::unfold((store, bundle, 0), move |(store, bundle, piece)| async move {
        match store.find_bundle_piece(tenant, bundle.as_deref()?, piece).await {
            Ok(data) => Some((Part::Data(data?), (store, bundle, piece + 1))),
            // The stream ends early; the sandbox refuses the incomplete bundle.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "read a bundle");
                None
            }
        }
    });
    let parts = stream::once(async { Part::Header(header) }).chain(pieces);
    let messages = parts.map(|part| v1::OpenWorkspaceRequest { part: Some(part) });
    let mut sandbox = state.sandbox.clone();
    // Rare, and large: not a part of every future that might need it.
    match Box::pin(sandbox.open_workspace(messages)).await {
        Ok(_) => Ok(()),
        Err(status) if code_of(&status).as_deref() == Some("epoch_stale") => Err(missing),
        Err(status) => Err(from_sandbox(status)),
    }
}
