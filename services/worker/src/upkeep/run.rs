//! The rounds of the upkeep.

use super::{bundles, logs, reconciliation, removals, sessions, tenants, usage};
use crate::process::deps::Deps;
use domain::limits;
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Pause between two rounds of work that an operator or a client waits for.
const SOON: Duration = Duration::from_millis(limits::POLL_MS);
/// Pause between two rounds of work for which nobody waits.
const LATER: Duration = Duration::from_secs(60);
/// Looks at the clock in each period of the reconciliation.
const LOOKS_PER_PERIOD: u64 = 60;
/// Looks at the clock in each period of the measurement.
const MEASURE_LOOKS_PER_PERIOD: u64 = 6;

/// Works until the process ends. A batch that is cut off is done again later.
pub(crate) async fn until(deps: Arc<Deps>, shutdown: CancellationToken) {
    let deps = &*deps;
    let period = Duration::from_millis(deps.reconcile_ms / LOOKS_PER_PERIOD);
    let measure_period = Duration::from_millis(deps.measure_ms / MEASURE_LOOKS_PER_PERIOD);
    // Each kind of work has rounds of its own: the removal of a large workspace takes minutes.
    let work = async {
        tokio::join!(
            every(SOON, || removals::remove_due(deps)),
            every(SOON, || tenants::delete_marked(deps)),
            every(LATER, || bundles::forget_old(deps)),
            every(LATER, || logs::compact_if_due(deps)),
            every(LATER, || sessions::expire_old(deps)),
            every(measure_period, || usage::measure_if_due(deps)),
            every(period, || reconciliation::reconcile_if_due(deps)),
        )
    };
    // Boxed because the future is large and lives as long as the process.
    shutdown.run_until_cancelled(Box::pin(work)).await;
}

/// Does rounds of work for ever. A panic ends only its round.
async fn every<F: Future<Output = ()>>(pause: Duration, mut work: impl FnMut() -> F) {
    loop {
        // Spreads the rounds of several workers over time.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.8..1.2))).await;
        if AssertUnwindSafe(work()).catch_unwind().await.is_err() {
            tracing::error!("a round of the upkeep panicked; the next one tries again");
        }
    }
}
