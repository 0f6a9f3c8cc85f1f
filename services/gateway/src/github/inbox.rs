//! Processes what GitHub has told us, one delivery after the other, until the gateway stops.

use super::payload::{self, Meaning};
use crate::{
    app::{
        forge::{
            deliveries::{self, Processed},
            intake,
        },
        gateway::Gateway,
    },
    errors::error::Error,
};
use std::time::Duration;
use store::control::deliveries::ClaimedDelivery;

/// Deliveries that one gateway processes at the same time: each mostly waits for the forge.
pub(crate) const PROCESSED_MAX: usize = 8;
/// Pause after Postgres did not answer.
const PAUSE: Duration = Duration::from_secs(2);

/// Processes deliveries until the gateway stops. Each gateway runs [`PROCESSED_MAX`] of these.
///
/// Dropped midway: the delivery comes again when its claim has ended.
pub(crate) async fn run(gateway: Gateway) {
    let shutdown = gateway.shutdown().clone();
    while !shutdown.is_cancelled() {
        match deliveries::claim(&gateway).await {
            Ok(Some(delivery)) => finish(&gateway, &delivery).await,
            Ok(None) => {
                shutdown.run_until_cancelled(deliveries::wait(&gateway)).await;
            }
            Err(error) => {
                tracing::debug!(code = error.code(), "cannot claim a delivery: {error}");
                shutdown.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
            }
        }
    }
}

async fn finish(gateway: &Gateway, delivery: &ClaimedDelivery) {
    let processed = Box::pin(process(gateway, delivery)).await;
    if let Err(error) = deliveries::finish(gateway, delivery, processed).await {
        tracing::debug!(
            code = error.code(),
            "a delivery comes again, because its end is not stored: {error}"
        );
    }
}

async fn process(gateway: &Gateway, delivery: &ClaimedDelivery) -> Result<Processed, Error> {
    match payload::meaning(&delivery.event, &delivery.body) {
        Ok(Meaning::Comment(comment)) => intake::take(gateway, &comment).await,
        Ok(Meaning::Nothing(why)) => Ok(Processed::Ignored(why)),
        Err(error) => Ok(Processed::Dead(format!("it cannot be read: {error}"))),
    }
}
