//! Removes what deleted tenants have, in batches.
// Continues in `removals` and `rows`, which remove the files of the sessions and their rows.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use domain::ids::TenantId;
use store::error::Error as StoreError;

/// Deleted tenants of one round. The next round takes further ones.
const TENANTS_MAX: i64 = 4;
/// Sessions of a tenant in one round, each with its subtasks in a transaction of its own. The next round takes further ones.
const SESSIONS_MAX: i64 = 200;
/// Batches of a tenant's other rows in one round. The next round continues.
const BATCHES_MAX: usize = 16;

/// Removes a part of what each deleted tenant has. Two workers may do so at once.
pub(super) async fn delete_marked(deps: &Deps) -> Result<(), Error> {
    for tenant in with_store_timeout(deps.store.list_deleted_tenants(TENANTS_MAX)).await? {
        match delete_some(deps, tenant).await {
            // Another worker was faster.
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, tenant.id = %tenant, "cannot delete the data of a tenant yet");
            }
        }
    }
    Ok(())
}

async fn delete_some(deps: &Deps, tenant: TenantId) -> Result<(), StoreError> {
    let store = &deps.store;
    let roots = with_store_timeout(store.list_roots(tenant, SESSIONS_MAX)).await?;
    for root in &roots {
        match with_store_timeout(store.delete_session(tenant, root)).await {
            Ok(deletion) => {
                // Their loops notice at once that they are fenced.
                deletion.tombstones.iter().for_each(|gone| deps.bus.nudge(tenant, &gone.session));
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    if roots.len() >= usize::try_from(SESSIONS_MAX).unwrap_or(usize::MAX)
        || !delete_rows(deps, tenant).await?
        || with_store_timeout(store.has_row_removals(tenant)).await?
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
async fn delete_rows(deps: &Deps, tenant: TenantId) -> Result<bool, StoreError> {
    for _ in 0..BATCHES_MAX {
        if with_store_timeout(deps.store.delete_tenant_rows(tenant)).await? == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
