//! The claiming side of a worker: receives doorbell rings and claims, until the process must stop.

use super::{claimer::Claimer, handover, lease::Lease, nudges, sweep, warm_ups};
use crate::{config::Config, process::deps::Deps};
use anyhow::Context as _;
use domain::limits;
use std::{sync::Arc, time::Duration};
use store::schema::{self, NewerSchema};
use tokio_util::sync::CancellationToken;

/// Waits until Postgres answers, and reports that in the worker's health. Returns early if the process must stop.
///
/// # Errors
/// Postgres refuses the login or the database, or its schema does not fit this program.
pub(crate) async fn wait_for_postgres(
    deps: &Deps,
    newer: NewerSchema,
    service: &chassis::Service,
) -> anyhow::Result<()> {
    while !service.shutdown.is_cancelled() {
        let found = async {
            deps.store.ping().await?;
            deps.store.find_schema_problem(newer).await
        };
        match found.await {
            Ok(None) => {
                service.health.set("postgres", Ok(()));
                return Ok(());
            }
            Ok(Some(problem)) => return Err(problem.into()),
            Err(error) if !error.is_transient() => return Err(error).context(schema::UNREADABLE),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Postgres does not answer; retrying"
                );
                service.health.set("postgres", Err(error.to_string()));
            }
        }
        tokio::select! {
            () = service.shutdown.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(limits::POLL_MS / 4)) => {}
        }
    }
    Ok(())
}

/// Claims until the process must stop, then hands over every session.
pub(crate) async fn run(config: &Config, deps: Arc<Deps>, lease: Lease, service: &chassis::Service) {
    let claimer = Arc::new(Claimer::new(config, deps, lease, service));
    let mut doorbell = match claimer.deps.bus.listen().await {
        Ok(doorbell) => doorbell,
        Err(error) => {
            return tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot listen to the doorbell"
            );
        }
    };
    let nudges = match claimer.deps.bus.nudges().await {
        Ok(nudges) => nudges,
        Err(error) => {
            return tracing::error!(error = &error as &dyn std::error::Error, "cannot listen to nudges");
        }
    };
    // In a separate task: with a long backlog a sweep takes a while, and prompts must not wait for it.
    let (own, shutdown) = (Arc::clone(&claimer), service.shutdown.clone());
    service.tasks.spawn_loop("sweep", move || sweep::sweep_until(Arc::clone(&own), shutdown.clone()));
    let handed_over = CancellationToken::new();
    nudges::spawn(&claimer, nudges, &handed_over);
    if config.warm_ups > 0 {
        let hints = claimer.deps.bus.warm_up_hints();
        warm_ups::spawn(&claimer, hints, config.warm_ups, &service.shutdown);
    }
    let mut drain_asked = claimer.lease.drain_asked.clone();
    while !service.shutdown.is_cancelled() {
        tokio::select! {
            () = service.shutdown.cancelled() => {}
            Ok(()) = drain_asked.changed() => {
                handover::apply_drain(&claimer, *drain_asked.borrow_and_update());
            }
            () = doorbell.wait() => {
                claimer.contention.ring();
                claimer.claim().await;
            }
        }
    }
    handover::hand_over(&claimer).await;
    handed_over.cancel();
}
