//! Removes the rows of deleted sessions from Postgres.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};

/// Tenants that take turns. The next turns take others too.
const TENANTS_MAX: i64 = 64;
/// Batches of one round. The next round continues.
const BATCHES_MAX: usize = 1_000;

/// Removes rows until none is left. Each tenant gets a batch in turn, so a tenant that deletes much holds up no other one.
pub(super) async fn remove(deps: &Deps) -> Result<(), Error> {
    let (mut batches, mut rows) = (0, 0);
    while batches < BATCHES_MAX {
        let batches_before = batches;
        for tenant in with_store_timeout(deps.store.list_row_removals(TENANTS_MAX)).await? {
            // Nothing if other workers are busy with all sessions of the tenant.
            if let Some(removed) = with_store_timeout(deps.store.remove_rows(tenant)).await? {
                (batches, rows) = (batches + 1, rows + removed);
            }
        }
        if batches == batches_before {
            break;
        }
    }
    if batches > 0 {
        tracing::debug!("removed {rows} rows of deleted sessions in {batches} batches");
    }
    Ok(())
}
