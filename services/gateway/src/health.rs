//! Reports whether the gateway can work. It needs Postgres; Redis and NATS only make it faster.

use crate::ground::state::State;
use std::time::Duration;
use tonic_health::{ServingStatus, server::HealthReporter};

/// Poll interval.
const POLL: Duration = Duration::from_secs(2);

/// Polls until the gateway stops, and then reports that it does not serve.
pub(crate) async fn watch(state: State, service: chassis::Service, reporter: HealthReporter) {
    while !service.shutdown.is_cancelled() {
        let postgres = state.store.ping().await;
        let status = if postgres.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        service.health.set("postgres", postgres.map_err(|error| error.to_string()));
        reporter.set_service_status("", status).await;
        let up = |is_up: bool| if is_up { 1.0 } else { 0.0 };
        metrics::gauge!("flotilla_redis_up").set(up(state.bus.ping_redis().await.is_ok()));
        metrics::gauge!("flotilla_nats_up").set(up(state.bus.ping_nats().is_ok()));
        tokio::select! {
            () = service.shutdown.cancelled() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
    reporter.set_service_status("", ServingStatus::NotServing).await;
}
