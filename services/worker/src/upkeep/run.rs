//! The rounds of the upkeep.

use super::{error::Error, work::Work};
use crate::process::{deps::Deps, store_timeout::with_store_timeout};
use chassis::tasks;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Works until the process ends. A batch that is cut off is done again later.
pub(crate) async fn until(deps: Arc<Deps>, shutdown: CancellationToken) {
    let work = futures::future::join_all(Work::ALL.map(|work| every(&deps, work)));
    // Boxed because the future is large and lives as long as the process.
    shutdown.run_until_cancelled(Box::pin(work)).await;
}

/// Does rounds of work for ever. A panic ends only its round.
async fn every(deps: &Deps, work: Work) {
    loop {
        // Spreads the rounds of several workers over time.
        tokio::time::sleep(work.pause(deps).mul_f64(rand::random_range(0.8..1.2))).await;
        if tasks::catch_panic("upkeep", round(deps, work)).await.is_none() {
            tracing::error!(work = work.name(), "a round of the upkeep panicked; the next one tries again");
        }
    }
}

/// Does a round if it is due, measures it, and reports an error.
async fn round(deps: &Deps, work: Work) {
    let name = work.name();
    let result = match is_due(deps, work).await {
        Ok(false) => return,
        Ok(true) => {
            let began = Instant::now();
            let result = work.run(deps).await;
            metrics::histogram!("flotilla_upkeep_duration_ms", "work" => name)
                .record(milliseconds(began.elapsed()));
            result
        }
        Err(error) => Err(error),
    };
    let Err(error) = result else { return };
    metrics::counter!("flotilla_upkeep_failures_total", "work" => name).increment(1);
    let is_transient = error.is_transient();
    let error = &error as &dyn std::error::Error;
    if is_transient {
        tracing::debug!(error, work = name, "a round of the upkeep failed; the next one tries again");
    } else {
        tracing::warn!(error, work = name, "a round of the upkeep failed; the next one tries again");
    }
}

/// Whether a round is due now, and this worker is to do it.
async fn is_due(deps: &Deps, work: Work) -> Result<bool, Error> {
    let Some(period_ms) = work.fleet_period_ms(deps) else { return Ok(true) };
    Ok(with_store_timeout(deps.store.claim_chore(work.name(), period_ms)).await?)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
