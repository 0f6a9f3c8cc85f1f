//! Warms sessions up, when gateways hint that a person has created or follows one. A hint may be lost, and one beyond the bounds is dropped: the first turn of
//! the session then brings what is missing. One of the workers gets each hint.

use super::claimer::Claimer;
use crate::{process::deps::Deps, repository::warm_up::WarmUp};
use bus::warm_up::WarmUpHints;
use chassis::{lock, tasks};
use domain::ids::{ProjectId, SessionId, TenantId};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Projects of one tenant that one worker warms up within ten minutes. Further hints are dropped.
const WARM_UPS_TENANT_MAX: usize = 8;
/// Time for which a worker remembers a warm-up: the machine then has what it brought, or a failure lasts.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Tenants whose warm-ups one worker remembers. Hints of further tenants are dropped.
const WARM_TENANTS_MAX: usize = 1_000;

/// The warm-ups of one worker.
struct WarmUps {
    /// One permit for each that may run.
    running: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, TenantWarmUps>>,
}

#[derive(Debug, Default)]
struct TenantWarmUps {
    /// Whether one runs: a tenant has one at a time, as on the sandbox machine.
    is_running: bool,
    /// The projects of the last minutes.
    recent: Vec<(ProjectId, Instant)>,
}

impl TenantWarmUps {
    fn forget_old(&mut self, now: Instant) {
        self.recent.retain(|(_, begun_at)| now.duration_since(*begun_at) < REMEMBERED);
    }
}

/// The right to warm one project up. Dropping it gives it back.
struct WarmUpTurn {
    warm_ups: Arc<WarmUps>,
    tenant: TenantId,
    _permit: OwnedSemaphorePermit,
}

impl WarmUps {
    fn new(running_max: u32) -> Self {
        let running = Arc::new(Semaphore::new(running_max as usize));
        Self { running, tenants: Mutex::default() }
    }

    /// Begins the warm-up of a project, unless it began lately, or the tenant or the worker has enough of them.
    fn begin(self: &Arc<Self>, tenant: TenantId, project: &ProjectId, now: Instant) -> Option<WarmUpTurn> {
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        let mut tenants = lock(&self.tenants);
        if tenants.len() >= WARM_TENANTS_MAX && !tenants.contains_key(&tenant) {
            tenants.retain(|_, own| {
                own.forget_old(now);
                own.is_running || !own.recent.is_empty()
            });
            if tenants.len() >= WARM_TENANTS_MAX {
                return None;
            }
        }
        let own = tenants.entry(tenant).or_default();
        own.forget_old(now);
        let is_known = own.recent.iter().any(|(known, _)| known == project);
        if own.is_running || is_known || own.recent.len() >= WARM_UPS_TENANT_MAX {
            return None;
        }
        own.is_running = true;
        own.recent.push((project.clone(), now));
        Some(WarmUpTurn { warm_ups: Arc::clone(self), tenant, _permit: permit })
    }
}

impl Drop for WarmUpTurn {
    fn drop(&mut self) {
        if let Some(own) = lock(&self.warm_ups.tenants).get_mut(&self.tenant) {
            own.is_running = false;
        }
    }
}

/// Follows hints until `shutdown`, in their order.
pub(super) fn spawn(
    claimer: &Arc<Claimer>,
    mut hints: WarmUpHints,
    running_max: u32,
    shutdown: &CancellationToken,
) {
    let (own, shutdown) = (Arc::clone(claimer), shutdown.clone());
    let warm_ups = Arc::new(WarmUps::new(running_max));
    claimer.tasks.spawn("warm-up hints", async move {
        while let Some((tenant, session)) = shutdown.run_until_cancelled(hints.next_hint()).await {
            // A worker without a free slot leaves the machines to the sessions that run.
            if own.slots.available_permits() == 0 || own.drain.is_on() {
                count("dropped");
                continue;
            }
            let begin =
                tasks::catch_panic("warm-up hints", Box::pin(begin(&own.deps, &warm_ups, tenant, session)));
            if let Some((warm_up, turn)) = shutdown.run_until_cancelled(begin).await.flatten().flatten() {
                let shutdown = shutdown.clone();
                own.tasks.spawn("warm-up", async move {
                    shutdown.run_until_cancelled(Box::pin(bring(&warm_up))).await;
                    drop(turn);
                });
            }
        }
    });
}

/// Begins the warm-up of a session, if it needs one and may have it.
async fn begin(
    deps: &Arc<Deps>,
    warm_ups: &Arc<WarmUps>,
    tenant: TenantId,
    session: SessionId,
) -> Option<(WarmUp, WarmUpTurn)> {
    let found = match WarmUp::find(deps, tenant, &session).await {
        Ok(found) => found,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %session, "cannot find what a session needs");
            count("failed");
            return None;
        }
    };
    let Some(warm_up) = found else {
        count("not_needed");
        return None;
    };
    let turn = warm_ups.begin(tenant, warm_up.project(), Instant::now());
    if turn.is_none() {
        count("dropped");
    }
    turn.map(|turn| (warm_up, turn))
}

async fn bring(warm_up: &WarmUp) {
    let begun_at = Instant::now();
    let brought = warm_up.bring().await;
    metrics::histogram!("flotilla_warm_up_seconds").record(begun_at.elapsed().as_secs_f64());
    count(match brought {
        Ok(()) => "done",
        Err(status) => {
            // The first turn of a session shows it to people, if it lasts.
            tracing::debug!("a warm-up failed: {}", status.message());
            "failed"
        }
    });
}

fn count(outcome: &'static str) {
    metrics::counter!("flotilla_warm_ups_total", "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn tenant(number: u128) -> TenantId {
        TenantId(uuid::Uuid::from_u128(number))
    }

    fn project(number: usize) -> ProjectId {
        format!("prj_{number}").parse().unwrap()
    }

    #[tokio::test]
    async fn a_flood_of_hints_begins_at_most_the_bound() {
        let (warm_ups, now) = (Arc::new(WarmUps::new(2)), Instant::now());
        let begin = |number, at| warm_ups.begin(tenant(1), &project(number), at);
        // At once: one of a tenant, and two of all.
        let held: Vec<_> = (0..10_000).filter_map(|number| begin(number, now)).collect();
        assert_eq!(held.len(), 1);
        let other = warm_ups.begin(tenant(2), &project(0), now).unwrap();
        assert!(warm_ups.begin(tenant(3), &project(0), now).is_none());
        drop((held, other));

        // Within ten minutes: each project once, and eight of a tenant.
        assert!(begin(0, now).is_none());
        let begun = (1..10_000).filter(|number| begin(*number, now).is_some()).count();
        assert_eq!(1 + begun, WARM_UPS_TENANT_MAX);
        assert!(warm_ups.begin(tenant(3), &project(0), now).is_some(), "another tenant");
        assert!(begin(0, now + REMEMBERED).is_some(), "later");
    }

    #[tokio::test]
    async fn a_crowd_of_tenants_is_forgotten_after_a_while() {
        let (warm_ups, now) = (Arc::new(WarmUps::new(1)), Instant::now());
        for number in 0..WARM_TENANTS_MAX as u128 {
            assert!(warm_ups.begin(tenant(number), &project(0), now).is_some());
        }
        let late = tenant(WARM_TENANTS_MAX as u128);
        assert!(warm_ups.begin(late, &project(0), now).is_none());
        assert!(warm_ups.begin(late, &project(0), now + REMEMBERED).is_some());
        assert_eq!(lock(&warm_ups.tenants).len(), 1);
    }
}
