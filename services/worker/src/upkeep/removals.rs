//! Removes the files of deleted sessions from the sandbox.

use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_away},
    store_timeout::with_store_timeout,
};
use futures::StreamExt as _;
use rpc::v1;
use std::time::Duration;
use store::control::removals::Removal;

/// Removals of one round.
const BATCH_MAX: i64 = 16;
/// Removals at the same time: each may start a helper on the sandbox machine.
const PARALLEL_MAX: usize = 4;
/// Longest wait for one removal: the sandbox's own bound, and time to answer.
const REMOVAL_WAIT: Duration = Duration::from_millis(domain::limits::WORKSPACE_HELPER_MS + 10_000);

/// Tries the removals that are due. The store repeats those that fail.
pub(super) async fn remove_due(deps: &Deps) {
    match with_store_timeout(deps.store.claim_removals(BATCH_MAX)).await {
        Ok(removals) => {
            let removals = futures::stream::iter(&removals);
            removals.for_each_concurrent(PARALLEL_MAX, |removal| remove(deps, removal)).await;
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot list the files to remove")
        }
    }
}

async fn remove(deps: &Deps, removal: &Removal) {
    let Removal { tenant, session, epoch } = removal.clone();
    let identity = Identity { tenant, workspace: session.clone(), session, epoch };
    let request = v1::CloseWorkspaceRequest { fence: identity.fence() };
    let mut client = deps.sandbox.client();
    match tokio::time::timeout(REMOVAL_WAIT, client.close_workspace(request)).await {
        Ok(Ok(_)) => {}
        // A session with a higher epoch uses the id, so the files are not those of the deleted session.
        Ok(Err(status)) if rpc::status::code_of(&status).as_deref() == Some("epoch_stale") => {}
        Ok(Err(status)) if is_away(&status) => {
            return tracing::debug!("the sandbox does not answer; the files are removed later");
        }
        Ok(Err(status)) => {
            let session = &identity.session;
            return tracing::warn!(session.id = %session, "cannot remove the workspace yet: {}", status.message());
        }
        Err(_) => {
            return tracing::warn!(session.id = %identity.session, "the removal of a workspace takes too long");
        }
    }
    if let Err(error) = with_store_timeout(deps.store.finish_removal(removal)).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot record that a workspace is removed; it is removed once more");
    }
}
