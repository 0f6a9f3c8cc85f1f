//! Removes what tenants have left behind: empty projects, revoked keys, what was read of old commits, and old deliveries of a forge.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use store::tenant::projects::{Deletable, ProjectDeletion};

/// Empty projects of one round, each deleted in a transaction of its own. The next round takes further ones.
const PROJECTS_MAX: i64 = 200;

pub(super) async fn forget(deps: &Deps) -> Result<(), Error> {
    let mut projects = 0;
    for empty in with_store_timeout(deps.store.list_empty_projects(PROJECTS_MAX)).await? {
        // A project that got a session, settings or a secret meanwhile stays.
        match with_store_timeout(deps.store.delete_project(
            empty.tenant,
            &empty.project,
            Deletable::Unconfigured,
        ))
        .await
        {
            Ok(deletion) => projects += u64::from(deletion == ProjectDeletion::Deleted),
            // Another worker was faster.
            Err(store::error::Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let keys = with_store_timeout(deps.store.forget_revoked_keys()).await?;
    let readings = with_store_timeout(deps.store.forget_old_readings()).await?;
    let deliveries = with_store_timeout(deps.store.forget_old_deliveries()).await?;
    if projects + keys + readings + deliveries > 0 {
        tracing::info!(
            "removed {projects} empty projects, {keys} revoked keys, {readings} old readings of commits and {deliveries} old deliveries"
        );
    }
    Ok(())
}
