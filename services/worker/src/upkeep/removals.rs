//! Removes the files of deleted sessions and tenants from the sandbox.

use super::error::Error;
use crate::process::{
    deps::Deps,
    sandbox::{Identity, is_away},
    store_timeout::with_store_timeout,
};
use domain::ids::TenantId;
use futures::StreamExt as _;
use rpc::v1::{self, ErrorCode};
use std::{sync::Arc, time::Duration};
use store::control::removals::Removal;
use tonic::Status;

/// Removals that one worker claims at once. Those that it claims and does not try before it dies wait for their next attempt.
const BATCH_MAX: i64 = 16;
/// Batches of one round. The next round continues.
const BATCHES_MAX: usize = 64;
/// Removals at the same time: each may start a helper on the sandbox machine. The others wait.
const PARALLEL_MAX: usize = 4;
/// Longest wait for one removal: the sandbox's own bound, and time to answer.
const REMOVAL_WAIT: Duration = Duration::from_millis(domain::limits::WORKSPACE_HELPER_MS + 10_000);

/// How the sandbox answered a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalAnswer {
    /// It removed the files, or it cannot yet.
    Given,
    Missing,
}

/// Tries the removals that are due, until none is left or the sandbox is away. The store repeats those that fail.
pub(super) async fn remove_due(deps: &Deps) -> Result<(), Error> {
    for _ in 0..BATCHES_MAX {
        let removals = with_store_timeout(deps.store.claim_removals(BATCH_MAX)).await?;
        if !remove_all(removals, |removal| remove(deps, removal)).await {
            break;
        }
    }
    for _ in 0..BATCHES_MAX {
        let tenants = with_store_timeout(deps.store.claim_tenant_removals(BATCH_MAX)).await?;
        if !remove_all(tenants, |tenant| remove_tenant(deps, tenant)).await {
            break;
        }
    }
    Ok(())
}

/// Tries a batch, and returns whether to try another one.
async fn remove_all<T, F>(batch: Vec<T>, remove: impl Fn(T) -> F) -> bool
where
    F: Future<Output = RemovalAnswer>,
{
    let answers = futures::stream::iter(batch.into_iter().map(remove)).buffer_unordered(PARALLEL_MAX);
    let answers: Vec<RemovalAnswer> = answers.collect().await;
    !answers.is_empty() && !answers.contains(&RemovalAnswer::Missing)
}

async fn remove(deps: &Deps, removal: Removal) -> RemovalAnswer {
    let Removal { tenant, session, epoch } = removal.clone();
    let identity = Identity { tenant, workspace: session.clone(), session, opening: Arc::default(), epoch };
    let request = v1::CloseWorkspaceRequest { fence: identity.fence() };
    let mut client = deps.sandbox.client();
    if let Err(status) = within(client.close_workspace(request)).await {
        match rpc::status::code(&status) {
            // A session with a higher epoch uses the id, so the files are not those of the deleted session.
            Some(ErrorCode::EpochStale) => {}
            // Something of a deleted tenant came back after all: a call was under way when the tenant was closed.
            Some(ErrorCode::TenantClosed) => return remove_tenant(deps, tenant).await,
            Some(_) | None => return report(&status),
        }
    }
    if let Err(error) = with_store_timeout(deps.store.finish_removal(&removal)).await {
        finish_failed(&error);
    }
    RemovalAnswer::Given
}

async fn remove_tenant(deps: &Deps, tenant: TenantId) -> RemovalAnswer {
    let request = v1::CloseTenantRequest { tenant_id: tenant.to_string() };
    let mut client = deps.sandbox.client();
    if let Err(status) = within(client.close_tenant(request)).await {
        return report(&status);
    }
    if let Err(error) = with_store_timeout(deps.store.finish_tenant_removal(tenant)).await {
        finish_failed(&error);
    }
    RemovalAnswer::Given
}

/// Waits for a removal for a bounded time.
async fn within<T>(answer: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<(), Status> {
    let answer = tokio::time::timeout(REMOVAL_WAIT, answer).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the sandbox did not answer in time"))).map(drop)
}

fn report(status: &Status) -> RemovalAnswer {
    if is_away(status) {
        tracing::debug!("the sandbox does not answer; the files are removed later");
        return RemovalAnswer::Missing;
    }
    tracing::warn!("cannot remove files yet: {}", status.message());
    RemovalAnswer::Given
}

fn finish_failed(error: &store::error::Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "cannot record that files are removed; they are removed once more"
    );
}
