//! Removes what deleted tenants have, and what tenants have left behind: empty projects and revoked keys. In batches.
// Continues in `removals`, which removes the files.

use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::ids::TenantId;
use store::error::Error;

/// Deleted tenants of one round. The next round takes further ones.
const TENANTS_MAX: i64 = 4;
/// Sessions of a tenant in one round, each with its subtasks in a transaction of its own. The next round takes further ones.
const SESSIONS_MAX: i64 = 200;
/// Batches of a tenant's other rows in one round. The next round continues.
const BATCHES_MAX: usize = 16;

/// Empty projects of one round, each deleted in a transaction of its own. The next round takes further ones.
const EMPTY_PROJECTS_MAX: i64 = 200;

/// The name of the ledger's chore in Postgres.
const LEDGER_CHORE: &str = "ledger";
/// Time between two looks for old entries of the ledger; milliseconds. Each look reads the whole ledger.
const LEDGER_PERIOD_MS: u64 = 24 * 60 * 60 * 1_000;
/// Entries of one transaction.
const LEDGER_BATCH: i64 = 10_000;
/// Transactions of one day. The next day continues.
const LEDGER_BATCHES_MAX: usize = 100;

/// Removes projects, keys and costs that nobody needs.
pub(super) async fn forget_unused(deps: &Deps) {
    if let Err(error) = forget_some(deps).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "cannot remove empty projects and revoked keys"
        );
    }
}

async fn forget_some(deps: &Deps) -> Result<(), Error> {
    let mut projects = 0;
    for empty in with_store_timeout(deps.store.list_empty_projects(EMPTY_PROJECTS_MAX)).await? {
        // A project that got a session meanwhile stays.
        match with_store_timeout(deps.store.delete_project(empty.tenant, &empty.project)).await {
            Ok(is_deleted) => projects += u64::from(is_deleted),
            // Another worker was faster.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let keys = with_store_timeout(deps.store.forget_revoked_keys()).await?;
    let costs = forget_costs(deps).await?;
    if projects + keys + costs > 0 {
        tracing::info!(
            "removed {projects} empty projects, {keys} revoked keys and {costs} old entries of the ledger"
        );
    }
    Ok(())
}

/// Removes old entries of the ledger if no worker did so today. Returns their number.
async fn forget_costs(deps: &Deps) -> Result<u64, Error> {
    let mut costs = 0;
    if with_store_timeout(deps.store.claim_chore(LEDGER_CHORE, LEDGER_PERIOD_MS)).await? {
        for _ in 0..LEDGER_BATCHES_MAX {
            let removed = with_store_timeout(deps.store.forget_old_costs(LEDGER_BATCH)).await?;
            costs += removed;
            if removed == 0 {
                break;
            }
        }
    }
    Ok(costs)
}

/// Removes a part of what each deleted tenant has. Two workers may do so at once.
pub(super) async fn delete_marked(deps: &Deps) {
    let tenants = match with_store_timeout(deps.store.list_deleted_tenants(TENANTS_MAX)).await {
        Ok(tenants) => tenants,
        Err(error) => {
            return tracing::debug!(error = &error as &dyn std::error::Error, "cannot list deleted tenants");
        }
    };
    for tenant in tenants {
        match delete_some(deps, tenant).await {
            // Another worker was faster.
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, tenant.id = %tenant, "cannot delete the data of a tenant yet");
            }
        }
    }
}

async fn delete_some(deps: &Deps, tenant: TenantId) -> Result<(), Error> {
    let store = &deps.store;
    let roots = with_store_timeout(store.list_roots(tenant, SESSIONS_MAX)).await?;
    for root in &roots {
        match with_store_timeout(store.delete_session(tenant, root)).await {
            Ok(deletion) => {
                // Their loops notice at once that they are fenced.
                deletion.tombstones.iter().for_each(|gone| deps.bus.nudge(tenant, &gone.session));
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if roots.len() >= usize::try_from(SESSIONS_MAX).unwrap_or(usize::MAX)
        || !delete_rows(deps, tenant).await?
    {
        return Ok(());
    }
    if let Err(error) = deps.bus.forget_tenant(tenant).await {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "cannot remove a tenant from Redis yet");
        return Ok(());
    }
    with_store_timeout(store.finish_tenant_deletion(tenant)).await?;
    tracing::info!(tenant.id = %tenant, "the data of a deleted tenant is removed");
    Ok(())
}

/// Deletes some of the rows that belong to no session. Returns whether none is left.
async fn delete_rows(deps: &Deps, tenant: TenantId) -> Result<bool, Error> {
    for _ in 0..BATCHES_MAX {
        if with_store_timeout(deps.store.delete_tenant_rows(tenant)).await? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
