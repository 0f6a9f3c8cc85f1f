//! Removes the files of deleted sessions and tenants from the sandbox.

use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_away},
    store_timeout::with_store_timeout,
};
use domain::ids::TenantId;
use futures::StreamExt as _;
use rpc::v1;
use std::time::Duration;
use store::{control::removals::Removal, error::Error};
use tonic::Status;

/// Removals of one round. The next round takes further ones.
const BATCH_MAX: i64 = 16;
/// Removals at the same time: each may start a helper on the sandbox machine. The others wait.
const PARALLEL_MAX: usize = 4;
/// Longest wait for one removal: the sandbox's own bound, and time to answer.
const REMOVAL_WAIT: Duration = Duration::from_millis(domain::limits::WORKSPACE_HELPER_MS + 10_000);

/// Tries the removals that are due. The store repeats those that fail.
pub(super) async fn remove_due(deps: &Deps) {
    let claim_failed = |error: Error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "cannot list the files to remove");
    };
    match with_store_timeout(deps.store.claim_removals(BATCH_MAX)).await {
        Ok(removals) => {
            let removals = futures::stream::iter(&removals);
            removals.for_each_concurrent(PARALLEL_MAX, |removal| remove(deps, removal)).await;
        }
        Err(error) => return claim_failed(error),
    }
    match with_store_timeout(deps.store.claim_tenant_removals(BATCH_MAX)).await {
        Ok(tenants) => {
            let tenants = futures::stream::iter(tenants);
            tenants.for_each_concurrent(PARALLEL_MAX, |tenant| remove_tenant(deps, tenant)).await;
        }
        Err(error) => claim_failed(error),
    }
}

async fn remove(deps: &Deps, removal: &Removal) {
    let Removal { tenant, session, epoch } = removal.clone();
    let identity = Identity { tenant, workspace: session.clone(), session, epoch };
    let request = v1::CloseWorkspaceRequest { fence: identity.fence() };
    let mut client = deps.sandbox.client();
    if let Err(status) = within(client.close_workspace(request)).await {
        match rpc::status::code_of(&status).as_deref() {
            // A session with a higher epoch uses the id, so the files are not those of the deleted session.
            Some("epoch_stale") => {}
            // Something of a deleted tenant came back after all: a call was under way when the tenant was closed.
            Some("tenant_closed") => return remove_tenant(deps, tenant).await,
            Some(_) | None => return report(&status),
        }
    }
    if let Err(error) = with_store_timeout(deps.store.finish_removal(removal)).await {
        finish_failed(&error);
    }
}

async fn remove_tenant(deps: &Deps, tenant: TenantId) {
    let request = v1::CloseTenantRequest { tenant_id: tenant.to_string() };
    let mut client = deps.sandbox.client();
    if let Err(status) = within(client.close_tenant(request)).await {
        return report(&status);
    }
    if let Err(error) = with_store_timeout(deps.store.finish_tenant_removal(tenant)).await {
        finish_failed(&error);
    }
}

/// Waits for a removal for a bounded time.
async fn within<T>(answer: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<(), Status> {
    let answer = tokio::time::timeout(REMOVAL_WAIT, answer).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the sandbox did not answer in time"))).map(drop)
}

fn report(status: &Status) {
    if is_away(status) {
        tracing::debug!("the sandbox does not answer; the files are removed later");
    } else {
        tracing::warn!("cannot remove files yet: {}", status.message());
    }
}

fn finish_failed(error: &Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "cannot record that files are removed; they are removed once more"
    );
}
