//! Compacts the logs of sessions that nobody uses.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use store::control::candidate::SessionRef;

/// Sessions of one round. The next round takes further ones.
const SESSIONS_MAX: i64 = 500;
/// Transactions for one session in one round; the next round continues.
const STRETCHES_MAX: usize = 100;

pub(super) async fn compact(deps: &Deps) -> Result<(), Error> {
    for session in with_store_timeout(deps.store.list_compactable(SESSIONS_MAX)).await? {
        // A log that cannot be compacted must not keep the others from it.
        if let Err(error) = compact_one(deps, &session).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %session.session, "cannot compact a log");
        }
    }
    Ok(())
}

async fn compact_one(deps: &Deps, session: &SessionRef) -> Result<(), Error> {
    for _ in 0..STRETCHES_MAX {
        if with_store_timeout(deps.store.compact_log(session)).await?.is_none() {
            break;
        }
    }
    Ok(())
}
