//! The rounds of the upkeep.

use super::removals;
use crate::process::deps::Deps;
use domain::limits;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Works until the process ends. A batch that is cut off is done again later.
pub(crate) async fn until(deps: Arc<Deps>, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        // Spreads the rounds of several workers over time.
        let pause = Duration::from_millis(limits::POLL_MS).mul_f64(rand::random_range(0.8..1.2));
        let round = async {
            removals::remove_due(&deps).await;
            tokio::time::sleep(pause).await;
        };
        shutdown.run_until_cancelled(round).await;
    }
}
