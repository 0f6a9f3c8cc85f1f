//! Finds work and starts loops: hears the doorbell, claims fairly in Redis, takes the session in Postgres. Without Redis
//! it claims from Postgres alone; without NATS it looks once a second.
// Continues in `turn`, which runs a session's loop.

use crate::{
    config::Config,
    deps::Deps,
    lease::Lease,
    rebuild,
    turn::{self, Control, End},
};
use bus::queue::{Claims, Mode, Then};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

type Key = (TenantId, SessionId);

struct Claimer {
    deps: Arc<Deps>,
    lease: Lease,
    /// One permit for each loop that may run.
    slots: Arc<Semaphore>,
    /// How to tell a running loop of an abort.
    running: Arc<Mutex<HashMap<Key, watch::Sender<u64>>>>,
    tasks: chassis::tasks::Tasks,
    drain: CancellationToken,
    drain_now: CancellationToken,
    health: chassis::admin::Health,
}

/// Waits until Postgres answers, saying so in the health; returns early when the process is asked to stop.
pub(crate) async fn wait_for_postgres(deps: &Deps, service: &chassis::Service) {
    while !service.shutdown.is_cancelled() {
        match deps.store.ping().await {
            Ok(()) => return service.health.set("postgres", Ok(())),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Postgres does not answer; trying again"
                );
                service.health.set("postgres", Err(error.to_string()));
            }
        }
        tokio::select! {
            () = service.shutdown.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(limits::POLL_MS / 4)) => {}
        }
    }
}

/// Claims until the process is asked to stop, then hands every session over.
pub(crate) async fn run(config: &Config, deps: Arc<Deps>, lease: Lease, service: &chassis::Service) {
    let slots = usize::try_from(config.slots).unwrap_or(1);
    let claimer = Claimer {
        deps,
        lease,
        slots: Arc::new(Semaphore::new(slots)),
        running: Arc::default(),
        tasks: service.tasks.clone(),
        drain: service.shutdown.clone(),
        drain_now: CancellationToken::new(),
        health: service.health.clone(),
    };
    let mut doorbell = match claimer.deps.bus.listen().await {
        Ok(doorbell) => doorbell,
        Err(error) => return tracing::error!(error = &error as &dyn std::error::Error, "no doorbell"),
    };
    let mut orders = match claimer.deps.bus.orders().await {
        Ok(orders) => orders,
        Err(error) => return tracing::error!(error = &error as &dyn std::error::Error, "no orders"),
    };
    let mut sweep_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = service.shutdown.cancelled() => break,
            key = orders.next_abort() => claimer.abort(&key),
            key = claimer.lease.next_abort() => claimer.abort(&key),
            () = doorbell.heard() => claimer.claim().await,
            () = tokio::time::sleep_until(sweep_at) => {
                claimer.sweep().await;
                // Not all workers in the same moment.
                sweep_at = Instant::now() + Duration::from_millis(limits::POLL_MS).mul_f64(rand::random_range(0.8..1.2));
            }
        }
    }
    claimer.hand_over(slots).await;
}

impl Claimer {
    fn abort(&self, key: &Key) {
        if let Some(loop_) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            loop_.send_modify(|count| *count += 1);
        }
    }

    /// Takes what Redis gives, as long as there are slots.
    async fn claim(&self) {
        while *self.lease.runs.borrow() {
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return };
            match self.deps.bus.claim(&self.deps.incarnation.to_string(), 1).await {
                Ok(Claims::Some(claimed)) => match claimed.into_iter().next() {
                    Some(claimed) => self.take((claimed.tenant, claimed.session), slot).await,
                    None => return,
                },
                Ok(Claims::Empty) => return,
                Err(error) => {
                    return tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "Redis gives no sessions"
                    );
                }
            }
        }
    }

    /// Gives back what this worker owns by the row but does not run: a take-over or a hand-over whose commit was in
    /// doubt, or a loop that lost Postgres for too long. Nobody else would take it from a living worker.
    async fn give_back_strays(&self) {
        let held = match self.deps.store.list_held(self.deps.incarnation).await {
            Ok(held) => held,
            Err(error) => {
                return tracing::debug!(error = &error as &dyn std::error::Error, "no look at what is held");
            }
        };
        for (place, epoch) in held {
            let key = (place.tenant, place.session);
            if !self.running.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key) {
                tracing::warn!(session.id = %key.1, epoch, "a session was held by no loop and is given back");
                give_back(&self.deps, key.0, &key.1, epoch).await;
                self.release(&key.1, Then::Front).await;
            }
        }
    }

    /// What no message announced: the guarantee behind every hint.
    async fn sweep(&self) {
        self.give_back_strays().await;
        let places = match rebuild::claimable(&self.deps, &self.lease).await {
            Ok(places) => places,
            Err(error) => {
                return tracing::warn!(error = &error as &dyn std::error::Error, "no sweep without Postgres");
            }
        };
        metrics::gauge!("flotilla_sessions_claimable")
            .set(f64::from(u32::try_from(places.len()).unwrap_or(u32::MAX)));
        if let Err(error) = self.deps.bus.reap().await {
            tracing::debug!(error = &error as &dyn std::error::Error, "Redis was not reaped");
        }
        let queued = rebuild::enqueue(&self.deps, &places, Mode::Normal).await;
        let claims =
            if queued { self.deps.bus.claim(&self.deps.incarnation.to_string(), 0).await.ok() } else { None };
        self.health.set("claims", Ok(()));
        match claims {
            Some(Claims::Some(_)) => self.claim().await,
            Some(Claims::Empty) => {
                if let Err(error) = rebuild::refill(&self.deps, &places).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Redis is not filled");
                }
                self.claim().await;
            }
            // Redis is away: Postgres alone says who gets what.
            None => {
                for place in places {
                    let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return };
                    if !*self.lease.runs.borrow() {
                        return;
                    }
                    self.take((place.tenant, place.session), slot).await;
                }
            }
        }
    }

    /// Takes a session in Postgres and starts its loop; a session that somebody else has is let go.
    async fn take(&self, key: Key, slot: tokio::sync::OwnedSemaphorePermit) {
        let (tenant, session) = &key;
        match self.deps.store.take_session(*tenant, session, self.deps.incarnation).await {
            Ok(Some(taken)) => self.start(key, taken, slot).await,
            Ok(None) => self.release(session, Then::Rest).await,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, session.id = %session, "take a session");
                self.release(session, Then::Front).await;
            }
        }
    }

    async fn start(&self, key: Key, taken: store::runs::Taken, slot: tokio::sync::OwnedSemaphorePermit) {
        let (aborts, receiver) = watch::channel(0);
        let control = Control {
            aborts: receiver,
            drain: self.drain.clone(),
            drain_now: self.drain_now.clone(),
            lease: self.lease.runs.clone(),
        };
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), aborts);
        let span = self.span(&taken).await;
        let (deps, running) = (Arc::clone(&self.deps), Arc::clone(&self.running));
        let ran = async move {
            let _slot = slot;
            let (tenant, session) = &key;
            metrics::gauge!("flotilla_loops_running").increment(1.0);
            let epoch = taken.fence.epoch;
            let loop_ = std::panic::AssertUnwindSafe(turn::run(Arc::clone(&deps), taken, control));
            let end = futures::FutureExt::catch_unwind(loop_).await;
            metrics::gauge!("flotilla_loops_running").decrement(1.0);
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            let then = match end {
                Ok(End::Parked | End::Dropped) => Then::Rest,
                Ok(End::HandedOver) => Then::Front,
                Err(_) => {
                    tracing::error!("the loop panicked; the session is tried again");
                    give_back(&deps, *tenant, session, epoch).await;
                    Then::Front
                }
            };
            released(&deps, session, then).await;
        };
        self.tasks.spawn("loop", ran.instrument(span));
    }

    /// The span of a turn: a child of whoever sent the newest prompt.
    async fn span(&self, taken: &store::runs::Taken) -> tracing::Span {
        let fence = &taken.fence;
        let span = tracing::info_span!(
            "turn",
            otel.kind = "consumer",
            tenant.id = %fence.tenant,
            session.id = %fence.session,
            epoch = fence.epoch,
            attempt = taken.attempts,
        );
        if let Ok(inputs) = self.deps.store.list_inputs(fence.tenant, &fence.session, taken.input_ack).await {
            let newest = inputs.iter().rev().find_map(|input| input.traceparent.as_deref());
            rpc::trace::adopt_traceparent(&span, newest);
        }
        span
    }

    async fn release(&self, session: &SessionId, then: Then) {
        released(&self.deps, session, then).await;
    }

    /// Ends every loop at its next step boundary, and what streams then after a grace; waits for all of them.
    async fn hand_over(&self, slots: usize) {
        self.lease.drain();
        tracing::info!("draining: {} loops are handed over", slots - self.slots.available_permits());
        let all = u32::try_from(slots).unwrap_or(u32::MAX);
        let grace = Duration::from_millis(limits::DRAIN_GRACE_MS);
        if tokio::time::timeout(grace, self.slots.acquire_many(all)).await.is_err() {
            self.drain_now.cancel();
            if tokio::time::timeout(Duration::from_secs(3), self.slots.acquire_many(all)).await.is_err() {
                tracing::error!("some loops did not end; their sessions are taken over when the lease ends");
            }
        }
        self.deps.bus.ring();
    }
}

async fn released(deps: &Deps, session: &SessionId, then: Then) {
    match deps.bus.release(session, &deps.incarnation.to_string(), then).await {
        Ok(queued_again) => {
            if queued_again || then == Then::Front {
                deps.bus.ring();
            }
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "Redis was not told of a release")
        }
    }
}

/// After a panic the session is runnable again; the attempt counts.
async fn give_back(deps: &Deps, tenant: TenantId, session: &SessionId, epoch: u64) {
    if let Err(error) = deps.store.fail_attempt(tenant, session, epoch).await {
        tracing::error!(error = &error as &dyn std::error::Error, "give a session back");
    }
}
