//! The sweep, once a second: finds the work that no message announced. Because of it, every hint of Redis and NATS may be
//! lost.

use super::{
    claimer::Claimer,
    orphans::{self, Orphans},
    rebuild,
};
use crate::process::store_timeout::with_store_timeout;
use bus::queue::{Claims, Mode};
use domain::limits;
use metrics::gauge;
use std::{sync::Arc, time::Duration};
use store::control::candidate::Candidate;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two counts of all sessions for a worker's metrics; milliseconds.
const SURVEY_MS: u64 = 10_000;

/// Sweeps until the process ends. A draining worker still repairs its orphans and closes aborted sessions: it may be the only
/// worker.
pub(super) async fn sweep_until(claimer: Arc<Claimer>, shutdown: CancellationToken) {
    let mut survey_at = Instant::now();
    let mut orphans = Orphans::default();
    while !shutdown.is_cancelled() {
        orphans = orphans::repair(&claimer, orphans).await;
        if claimer.drain.is_on() {
            close_all_aborted(&claimer).await;
        } else {
            sweep(&claimer).await;
        }
        if Instant::now() >= survey_at {
            survey(&claimer).await;
            wake_from_the_future(&claimer).await;
            forget_dead_workers(&claimer).await;
            forget_deleted(&claimer).await;
            claimer.deps.kept.drop_old(Instant::now());
            survey_at = Instant::now() + Duration::from_millis(SURVEY_MS);
        }
        // Spreads the sweeps of several workers over time.
        let pause = Duration::from_millis(limits::POLL_MS).mul_f64(rand::random_range(0.8..1.2));
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn sweep(claimer: &Arc<Claimer>) {
    let rings = claimer.contention.rings();
    // Each call has its own timeout, because a take must not be dropped midway.
    let claimable = match with_store_timeout(rebuild::claimable(&claimer.deps, &claimer.lease)).await {
        Ok(claimable) => {
            let most = usize::try_from(limits::SWEEP_MAX).unwrap_or(usize::MAX);
            claimer.contention.note_sweep(rings, &claimable, most);
            without_suspects(claimer, claimable)
        }
        Err(error) => {
            return tracing::warn!(error = &error as &dyn std::error::Error, "cannot sweep without Postgres");
        }
    };
    close_all_aborted(claimer).await;
    if let Err(error) = claimer.deps.bus.reap().await {
        tracing::debug!(error = &error as &dyn std::error::Error, "cannot remove dead workers from Redis");
    }
    let queued = rebuild::enqueue(&claimer.deps, &claimable, Mode::Normal).await;
    let claims = if queued {
        claimer.deps.bus.claim(&claimer.deps.incarnation.to_string(), 0).await.ok()
    } else {
        None
    };
    claimer.health.set("claims", Ok(()));
    match claims {
        Some(Claims::Some(_)) => claimer.claim().await,
        Some(Claims::Empty) => {
            if let Err(error) = rebuild::refill(&claimer.deps, &claimable).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot fill Redis");
            }
            claimer.claim().await;
        }
        // While Redis is down, workers take sessions in Postgres order.
        None => claim_from_postgres(claimer).await,
    }
}

async fn claim_from_postgres(claimer: &Arc<Claimer>) {
    if claimer.slots.available_permits() == 0 {
        return;
    }
    let takeable = match with_store_timeout(rebuild::takeable(&claimer.deps, &claimer.lease)).await {
        Ok(takeable) => without_suspects(claimer, takeable),
        Err(error) => {
            return tracing::warn!(error = &error as &dyn std::error::Error, "cannot claim without Postgres");
        }
    };
    for session in takeable {
        let Ok(slot) = Arc::clone(&claimer.slots).try_acquire_owned() else { return };
        if !*claimer.lease.runs.borrow() || claimer.drain.is_on() {
            return;
        }
        claimer.take((session.target.tenant, session.target.session), slot);
    }
}

/// Leaves out the suspects that this worker could not take now, beyond its slot for them.
fn without_suspects(claimer: &Claimer, mut claimable: Vec<Candidate>) -> Vec<Candidate> {
    let mut free = claimer.suspects_free();
    claimable.retain(|session| {
        let is_suspect =
            session.attempts >= limits::ATTEMPTS_SUSPECT && session.attempts < limits::ATTEMPTS_MAX;
        if is_suspect && free > 0 {
            free -= 1;
            return true;
        }
        !is_suspect
    });
    claimable
}

/// Closes aborted sessions without a loop: an abort must not wait for a slot.
async fn close_all_aborted(claimer: &Arc<Claimer>) {
    match with_store_timeout(rebuild::aborted(&claimer.deps, &claimer.lease)).await {
        Ok(aborted) => {
            for place in aborted {
                claimer.close_aborted((place.tenant, place.session));
            }
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot list aborted sessions")
        }
    }
}

/// Deletes the rows of workers that died long ago. Every worker does this; all but the first find none.
async fn forget_dead_workers(claimer: &Claimer) {
    match with_store_timeout(claimer.deps.store.forget_dead_workers()).await {
        Ok(0) => {}
        Ok(count) => tracing::debug!("deleted the rows of {count} dead workers"),
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot delete the rows of dead workers"
            )
        }
    }
}

/// Deletes the tombstones of sessions that were deleted long ago, like [`forget_dead_workers`].
async fn forget_deleted(claimer: &Claimer) {
    match with_store_timeout(claimer.deps.store.forget_deleted()).await {
        Ok(0) => {}
        Ok(count) => tracing::debug!("deleted the tombstones of {count} sessions"),
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot delete old tombstones");
        }
    }
}

/// Wakes sessions that would wait too long because the clock of Postgres was set back.
async fn wake_from_the_future(claimer: &Claimer) {
    match with_store_timeout(claimer.deps.store.wake_from_the_future(limits::SWEEP_MAX)).await {
        Ok(0) => {}
        Ok(count) => {
            tracing::warn!("the clock of Postgres was set back; woke {count} waiting sessions")
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot wake sessions from the future")
        }
    }
}

/// Updates the metrics that alert an operator. Every worker reports the same numbers; an alert uses the largest.
async fn survey(claimer: &Claimer) {
    let survey = match with_store_timeout(claimer.deps.store.survey()).await {
        Ok(survey) => survey,
        Err(error) => {
            return tracing::debug!(error = &error as &dyn std::error::Error, "cannot survey the sessions");
        }
    };
    for class in survey.classes {
        let name = class.class.as_str();
        gauge!("flotilla_sessions_runnable", "class" => name).set(class.runnable);
        gauge!("flotilla_oldest_runnable_seconds", "class" => name).set(class.oldest_seconds);
    }
    gauge!("flotilla_sessions_running").set(survey.running);
    gauge!("flotilla_sessions_waiting").set(survey.waiting);
    gauge!("flotilla_sessions_quarantined").set(survey.quarantined);
    gauge!("flotilla_sessions_orphaned").set(survey.orphaned);
    gauge!("flotilla_workers_alive").set(survey.workers);
    gauge!("flotilla_worker_slots").set(survey.slots);
}
