//! Measures the logs of sessions, so that quotas can count them.

use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use store::{control::candidate::SessionRef, error::Error};

/// The chore's name in Postgres.
const CHORE: &str = "usage";
/// Sessions of one round of the fleet. The next round takes further ones.
const SESSIONS_MAX: i64 = 2_000;
/// Transactions for one session in one round; the next round continues.
const STRETCHES_MAX: usize = 20;

/// Measures some logs if no worker did so lately.
pub(super) async fn measure_if_due(deps: &Deps) {
    if let Err(error) = measure_some(deps).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "cannot measure logs");
    }
}

async fn measure_some(deps: &Deps) -> Result<(), Error> {
    if !with_store_timeout(deps.store.claim_chore(CHORE, deps.measure_ms)).await? {
        return Ok(());
    }
    for session in with_store_timeout(deps.store.list_unmeasured(SESSIONS_MAX)).await? {
        measure(deps, &session).await?;
    }
    Ok(())
}

async fn measure(deps: &Deps, session: &SessionRef) -> Result<(), Error> {
    for _ in 0..STRETCHES_MAX {
        if !with_store_timeout(deps.store.measure_log(session)).await? {
            break;
        }
    }
    Ok(())
}
