//! Compacts the logs of sessions that nobody uses.

use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use store::{control::candidate::SessionRef, error::Error};

/// The chore's name in Postgres.
const CHORE: &str = "compaction";
/// Time between two rounds of the fleet; milliseconds. Finding the sessions reads all control rows.
const PERIOD_MS: u64 = 10 * 60 * 1_000;
/// Sessions of one round. The next round takes further ones.
const SESSIONS_MAX: i64 = 500;
/// Transactions for one session in one round; the next round continues.
const STRETCHES_MAX: usize = 100;

/// Compacts some logs if no worker did so lately.
pub(super) async fn compact_if_due(deps: &Deps) {
    if let Err(error) = compact_some(deps).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "cannot compact logs");
    }
}

async fn compact_some(deps: &Deps) -> Result<(), Error> {
    if !with_store_timeout(deps.store.claim_chore(CHORE, PERIOD_MS)).await? {
        return Ok(());
    }
    for session in with_store_timeout(deps.store.list_compactable(SESSIONS_MAX)).await? {
        // A log that cannot be compacted must not keep the others from it.
        if let Err(error) = compact(deps, &session).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %session.session, "cannot compact a log");
        }
    }
    Ok(())
}

async fn compact(deps: &Deps, session: &SessionRef) -> Result<(), Error> {
    for _ in 0..STRETCHES_MAX {
        if with_store_timeout(deps.store.compact_log(session)).await?.is_none() {
            break;
        }
    }
    Ok(())
}
