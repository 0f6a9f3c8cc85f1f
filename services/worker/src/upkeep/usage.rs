//! Measures the logs of sessions, so that quotas can count them.

use super::error::Error;
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use store::control::candidate::SessionRef;

/// Sessions of one round of the fleet. The next round takes further ones.
const SESSIONS_MAX: i64 = 2_000;
/// Transactions for one session in one round; the next round continues.
const STRETCHES_MAX: usize = 20;

pub(super) async fn measure(deps: &Deps) -> Result<(), Error> {
    for session in with_store_timeout(deps.store.list_unmeasured(SESSIONS_MAX)).await? {
        measure_one(deps, &session).await?;
    }
    Ok(())
}

async fn measure_one(deps: &Deps, session: &SessionRef) -> Result<(), Error> {
    for _ in 0..STRETCHES_MAX {
        if !with_store_timeout(deps.store.measure_log(session)).await? {
            break;
        }
    }
    Ok(())
}
