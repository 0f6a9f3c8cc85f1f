//! What no message announced: the guarantee behind every hint, once a second.

use super::{Claimer, strays::Strays};
use crate::{rebuild, record::answered};
use bus::queue::{Claims, Mode};
use domain::{
    limits,
    mutant::{self, Mutant},
};
use metrics::gauge;
use std::{sync::Arc, time::Duration};
use store::control::candidate::Candidate;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

impl Claimer {
    /// Sweeps until the process ends. A worker that takes no more sessions still gives back what it holds by mistake, and
    /// closes what was aborted: it may be the only one.
    pub(super) async fn sweep_until(self: Arc<Self>, shutdown: CancellationToken) {
        let mut survey_at = Instant::now();
        let mut strays = Strays::default();
        while !shutdown.is_cancelled() {
            strays = self.settle_strays(strays).await;
            if self.drain.is_on() {
                self.close_all_aborted().await;
            } else {
                self.sweep().await;
            }
            if Instant::now() >= survey_at {
                self.survey().await;
                self.wake_from_the_future().await;
                self.forget_dead_workers().await;
                self.forget_deleted().await;
                survey_at = Instant::now() + Duration::from_millis(limits::SURVEY_MS);
            }
            // Not all workers in the same moment.
            let pause = Duration::from_millis(limits::POLL_MS).mul_f64(rand::random_range(0.8..1.2));
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn sweep(&self) {
        if mutant::on(Mutant::NoSweeper) {
            return self.claim().await;
        }
        let rings = self.contention.rings();
        // Each question has a bound of its own: what takes a session must not be dropped halfway.
        let claimable = match answered(rebuild::claimable(&self.deps, &self.lease)).await {
            Ok(claimable) => {
                let most = usize::try_from(limits::SWEEP_MAX).unwrap_or(usize::MAX);
                self.contention.looked(rings, &claimable, most);
                self.without_suspects(claimable)
            }
            Err(error) => {
                return tracing::warn!(error = &error as &dyn std::error::Error, "no sweep without Postgres");
            }
        };
        self.close_all_aborted().await;
        if let Err(error) = self.deps.bus.reap().await {
            tracing::debug!(error = &error as &dyn std::error::Error, "Redis was not reaped");
        }
        let queued = rebuild::enqueue(&self.deps, &claimable, Mode::Normal).await;
        let claims =
            if queued { self.deps.bus.claim(&self.deps.incarnation.to_string(), 0).await.ok() } else { None };
        self.health.set("claims", Ok(()));
        match claims {
            Some(Claims::Some(_)) => self.claim().await,
            Some(Claims::Empty) => {
                if let Err(error) = rebuild::refill(&self.deps, &claimable).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled");
                }
                self.claim().await;
            }
            // Redis is away: Postgres alone says who gets what.
            None => self.claim_from_postgres().await,
        }
    }

    async fn claim_from_postgres(&self) {
        if self.slots.available_permits() == 0 {
            return;
        }
        let takeable = match answered(rebuild::takeable(&self.deps, &self.lease)).await {
            Ok(takeable) => self.without_suspects(takeable),
            Err(error) => {
                return tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "no claims without Postgres"
                );
            }
        };
        for session in takeable {
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return };
            if !*self.lease.runs.borrow() || self.drain.is_on() {
                return;
            }
            self.take((session.target.tenant, session.target.session), slot).await;
        }
    }

    /// Leaves out what this worker would not take now: suspects beyond its one place for them.
    fn without_suspects(&self, mut claimable: Vec<Candidate>) -> Vec<Candidate> {
        let mut places = self.suspects.available_permits();
        claimable.retain(|session| {
            let is_suspect =
                session.attempts >= limits::ATTEMPTS_SUSPECT && session.attempts < limits::ATTEMPTS_MAX;
            if is_suspect && places > 0 {
                places -= 1;
                return true;
            }
            !is_suspect
        });
        claimable
    }

    /// Closes aborted sessions without a loop: an abort must not wait for a slot.
    async fn close_all_aborted(&self) {
        match answered(rebuild::aborted(&self.deps, &self.lease)).await {
            Ok(places) => {
                for place in places {
                    self.close_aborted((place.tenant, place.session)).await;
                }
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "no look for aborts"),
        }
    }

    /// Deletes what is kept of workers that died long ago. Every worker does: the second finds nothing.
    async fn forget_dead_workers(&self) {
        match answered(self.deps.store.forget_dead_workers()).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!("{count} workers that died long ago are forgotten"),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "dead workers were not forgotten")
            }
        }
    }

    /// As [`Claimer::forget_dead_workers`], for what is kept of sessions that were deleted long ago.
    async fn forget_deleted(&self) {
        match answered(self.deps.store.forget_deleted()).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!("{count} sessions that were deleted long ago are forgotten"),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "deleted sessions were not forgotten"
                );
            }
        }
    }

    /// Wakes what would sleep too long because Postgres' clock was set back.
    async fn wake_from_the_future(&self) {
        match answered(self.deps.store.wake_from_the_future(limits::SWEEP_MAX)).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::warn!("Postgres' clock was set back: {count} sessions that wait look again")
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "nobody was woken"),
        }
    }

    /// Shows in metrics what an operator is woken for. Every worker says the same; an alert takes the greatest.
    async fn survey(&self) {
        let survey = match answered(self.deps.store.survey()).await {
            Ok(survey) => survey,
            Err(error) => {
                return tracing::debug!(error = &error as &dyn std::error::Error, "no survey");
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
}
