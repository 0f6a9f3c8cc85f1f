//! Deletes sessions that nobody has used for longer than their tenant keeps them.
// Continues in `removals` and `rows`, which remove their files and rows.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};

/// Sessions of one round, each with its subtasks in a transaction of its own. The next round takes further ones.
const SESSIONS_MAX: i64 = 200;

/// Deletes some of them. Two workers may do so at once.
pub(super) async fn expire_old(deps: &Deps) -> Result<(), Error> {
    let mut deleted = 0;
    for old in with_store_timeout(deps.store.list_expired(deps.retention, SESSIONS_MAX)).await? {
        match with_store_timeout(deps.store.expire_session(&old, deps.retention)).await {
            Ok(Some(deletion)) => {
                deleted += 1;
                for tombstone in &deletion.tombstones {
                    deps.publisher.publish_events(old.tenant, &tombstone.session, &[tombstone.event()]);
                }
            }
            // Somebody has used it meanwhile, or another worker was faster.
            Ok(None) | Err(store::error::Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if deleted > 0 {
        tracing::info!("deleted {deleted} sessions that are kept for no longer");
    }
    Ok(())
}
