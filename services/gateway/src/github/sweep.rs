//! Has GitHub send again what it could not send while nobody here listened. GitHub does not do so by itself.

use crate::{
    app::{forge::missed::Looks, gateway::Gateway},
    errors::error::Error,
};
use std::time::Duration;

/// Looks for missed deliveries until the gateway stops. One gateway of the fleet looks in each period.
///
/// Dropped midway: the next look does it again.
pub(crate) async fn run(gateway: Gateway, period: Duration) {
    let (shutdown, mut looks) = (gateway.shutdown().clone(), Looks::default());
    let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    while !shutdown.is_cancelled() {
        match looks.look(&gateway, period_ms).await {
            Ok(0) => {}
            Ok(count) => {
                metrics::counter!("flotilla_deliveries_missed_total").increment(count as u64);
                tracing::info!("GitHub is to send {count} deliveries again that it could not send");
            }
            // Most deployments have no App.
            Err(Error::BrokerUnavailable(_)) => {}
            Err(error) => tracing::debug!(code = error.code(), "cannot look for missed deliveries: {error}"),
        }
        // Spreads the looks of several gateways over time.
        let pause = period.mul_f64(rand::random_range(0.8..1.2));
        shutdown.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}
