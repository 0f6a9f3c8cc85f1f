//! The return of a loop that the sandbox refuses although the row in Postgres is its own. Then the database was restored from an older copy, and the sandbox knows
//! a higher epoch of the session. No loop can have that epoch: its writes would be refused. So the session goes on with one above it.

use super::{deps::Deps, store_timeout::with_store_timeout};
use rpc::{status::highest_epoch_of, v1};
use store::log::record::Fence;

/// Epochs by which a restored database may be behind: a session is taken about once for a prompt. Beyond it, the fence of the sandbox is damaged, and the session
/// is quarantined like one whose loop fails each time.
const EPOCHS_BEHIND_MAX: u64 = 1_000_000;

/// Has the session go on with an epoch above that of the sandbox, if this loop owns its row. Returns whether another loop may take it now.
pub(crate) async fn regain(deps: &Deps, fence: &Fence) -> bool {
    match with_store_timeout(deps.store.is_current(fence)).await {
        Ok(true) => {}
        // Another worker has the session, or Postgres is down.
        Ok(false) | Err(_) => return false,
    }
    let Some(highest) = find_highest(deps, fence).await.filter(|highest| *highest > fence.epoch) else {
        return false;
    };
    let (session, epoch) = (&fence.session, fence.epoch);
    if highest - epoch > EPOCHS_BEHIND_MAX {
        tracing::error!(tenant.id = %fence.tenant, session.id = %session, "the sandbox knows epoch {highest} of a session with epoch {epoch}: its fence is damaged");
        return false;
    }
    match with_store_timeout(deps.store.raise_epoch(fence, highest)).await {
        Ok(true) => {
            tracing::warn!(
                tenant.id = %fence.tenant, session.id = %session,
                "the sandbox knows epoch {highest} of a session with epoch {epoch}: Postgres was restored from an older copy; the session goes on above it"
            );
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot raise the epoch of a session");
            false
        }
    }
}

/// The highest epoch of the session that the sandbox knows, if it is above that of the loop.
async fn find_highest(deps: &Deps, fence: &Fence) -> Option<u64> {
    let own = v1::Fence {
        tenant_id: fence.tenant.to_string(),
        session_id: fence.session.to_string(),
        epoch: fence.epoch,
        ..v1::Fence::default()
    };
    let request = v1::GetWorkspaceRequest { fence: Some(own) };
    let answer = deps.sandbox.call(|mut client| {
        let request = request.clone();
        async move { client.get_workspace(request).await }
    });
    answer.await.err().as_ref().and_then(highest_epoch_of)
}
