//! Finds work and starts loops: hears the doorbell, claims fairly in Redis, takes the session in Postgres. Without Redis
//! it claims from Postgres alone; without NATS it looks once a second.
// Continues in `turn`, which runs a session's loop.

pub(crate) mod drain;
mod nudges;
mod strays;
mod sweep;

use crate::{
    clock::now,
    config::Config,
    contention::Contention,
    deps::Deps,
    lease::Lease,
    record::answered,
    turn::{self, Control, End},
};
use bus::queue::{Claims, ReleaseTo};
use domain::{
    ids::{EventId, SessionId, TenantId},
    limits,
    mutant::{self, Mutant},
    wait::Reason,
};
use drain::Drain;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use store::session::{
    quarantine::{Notice, QuarantineRule},
    runs::{SuspectPolicy, TakeOver, TakeResult},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

type Key = (TenantId, SessionId);

struct Claimer {
    deps: Arc<Deps>,
    lease: Lease,
    /// One permit for each loop that may run.
    slots: Arc<Semaphore>,
    slots_max: usize,
    /// One permit: a session whose loop ended more than once without progress runs alone of its kind.
    suspects: Arc<Semaphore>,
    /// Further places for sessions that are only to be closed after an abort.
    aborts: Arc<Semaphore>,
    /// Who may wait for a slot.
    contention: Arc<Contention>,
    /// How to tell a running loop to look into its mailbox.
    running: Arc<Mutex<HashMap<Key, watch::Sender<u64>>>>,
    tasks: chassis::tasks::Tasks,
    drain: Drain,
    shutdown: CancellationToken,
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
    let slots_max = usize::try_from(config.slots).unwrap_or(1);
    let claimer = Arc::new(Claimer {
        deps,
        lease,
        slots: Arc::new(Semaphore::new(slots_max)),
        slots_max,
        suspects: Arc::new(Semaphore::new(1)),
        aborts: Arc::new(Semaphore::new(limits::ABORTS_PARALLEL_MAX)),
        contention: Arc::default(),
        running: Arc::default(),
        tasks: service.tasks.clone(),
        drain: Drain::default(),
        shutdown: service.shutdown.clone(),
        health: service.health.clone(),
    });
    let mut doorbell = match claimer.deps.bus.listen().await {
        Ok(doorbell) => doorbell,
        Err(error) => return tracing::error!(error = &error as &dyn std::error::Error, "no doorbell"),
    };
    let nudges = match claimer.deps.bus.nudges().await {
        Ok(nudges) => nudges,
        Err(error) => return tracing::error!(error = &error as &dyn std::error::Error, "no nudges"),
    };
    // Beside the claims: under a long backlog a sweep takes a while, and no prompt shall wait for it.
    service.tasks.spawn("sweep", Arc::clone(&claimer).sweep_until(service.shutdown.clone()));
    let handed_over = CancellationToken::new();
    Arc::clone(&claimer).hear_nudges(nudges, &handed_over);
    let mut drain_asked = claimer.lease.drain_asked.clone();
    while !service.shutdown.is_cancelled() {
        tokio::select! {
            () = service.shutdown.cancelled() => {}
            Ok(()) = drain_asked.changed() => claimer.drain_if(*drain_asked.borrow_and_update()),
            () = doorbell.wait() => {
                claimer.contention.ring();
                claimer.claim().await;
            }
        }
    }
    claimer.hand_over().await;
    handed_over.cancel();
}

impl Claimer {
    /// Takes what Redis gives, as long as there are slots.
    async fn claim(&self) {
        while *self.lease.runs.borrow() && !self.drain.is_on() {
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

    /// Takes a session in Postgres and starts its loop; a session that somebody else has is let go.
    async fn take(&self, key: Key, slot: OwnedSemaphorePermit) {
        let (tenant, session) = &key;
        // Noted before it is ours: the sweep must not take a session that is just starting for one that nobody runs.
        let (nudges, receiver) = watch::channel(0);
        if !self.note(&key, nudges) {
            // It runs here already, and now Redis says so again.
            return;
        }
        let take = |suspects| {
            answered(self.deps.store.take_session(*tenant, session, self.deps.incarnation, suspects))
        };
        let (mut taken, mut lane) = (take(SuspectPolicy::Skip).await, None);
        if let Ok(TakeResult::Suspect) = taken {
            // Only for a suspect: a place that is held for a moment by every take would turn suspects away at random.
            lane = Arc::clone(&self.suspects).try_acquire_owned().ok();
            if lane.is_some() {
                taken = take(SuspectPolicy::Accept).await;
            }
        }
        match taken {
            Ok(TakeResult::Taken(taken)) => {
                let lane = lane.filter(|_| taken.is_suspect());
                return self.start(key, taken, (slot, lane), receiver).await;
            }
            Ok(TakeResult::Unavailable | TakeResult::Suspect) => self.forget(&key, ReleaseTo::Rest).await,
            Ok(TakeResult::Exhausted { attempts }) => {
                self.quarantine(*tenant, session, attempts).await;
                self.forget(&key, ReleaseTo::Rest).await;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, session.id = %session, "take a session");
                self.forget(&key, ReleaseTo::Front).await;
            }
        }
    }

    /// Notes that this worker has a session in hand. False when it has it already.
    fn note(&self, key: &Key, nudges: watch::Sender<u64>) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.contains_key(key) {
            return false;
        }
        running.insert(key.clone(), nudges);
        true
    }

    async fn forget(&self, key: &Key, then: ReleaseTo) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.release(&key.1, then).await;
    }

    /// Takes a session out of service that ended its loop too often, and tells whoever waits for it.
    async fn quarantine(&self, tenant: TenantId, session: &SessionId, attempts: i16) {
        let reason = format!("its loop ended {attempts} times in a row without getting any further");
        let ids = [(); 3].map(|()| self.deps.id(EventId::make));
        let notice = Notice { reason: &reason, event_ids: ids, at: now() };
        let rule = QuarantineRule::Exhausted;
        match answered(self.deps.store.quarantine(tenant, session, rule, notice)).await {
            Ok(Some(done)) => {
                metrics::counter!("flotilla_quarantines_total").increment(1);
                tracing::error!(tenant.id = %tenant, session.id = %session, "a session is quarantined: {reason}");
                self.deps.publisher.publish_events(tenant, session, &done.events);
                if let Some(parent) = &done.parent {
                    self.deps.interrupt(tenant, parent, done.class).await;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "quarantine a session");
            }
        }
    }

    async fn start(
        &self,
        key: Key,
        taken: TakeOver,
        (slot, lane): (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
        nudges: watch::Receiver<u64>,
    ) {
        let control = Control {
            nudges,
            leave: self.drain.leave(),
            lease: self.lease.runs.clone(),
            slots: Arc::clone(&self.slots),
            contention: Arc::clone(&self.contention),
            lane,
        };
        let span = self.span(&taken).await;
        let (deps, running) = (Arc::clone(&self.deps), Arc::clone(&self.running));
        let ran = async move {
            metrics::gauge!("flotilla_loops_running").increment(1.0);
            let epoch = taken.fence.epoch;
            let loop_ = Box::pin(turn::run(Arc::clone(&deps), taken, control));
            let loop_ = std::panic::AssertUnwindSafe(loop_);
            let end = futures::FutureExt::catch_unwind(loop_).await;
            metrics::gauge!("flotilla_loops_running").decrement(1.0);
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            // On the heap only now: most loops of a worker wait for their model's next word.
            Box::pin(ended(&deps, &key, epoch, end.ok())).await;
            // Rung last: a claim that comes before the slot is free finds none, and the next look is a second away.
            drop(slot);
            deps.bus.ring();
        };
        self.tasks.spawn("loop", ran.instrument(span));
    }

    /// The span of a turn: a child of whoever sent the newest prompt.
    async fn span(&self, taken: &TakeOver) -> tracing::Span {
        let fence = &taken.fence;
        let span = tracing::info_span!(
            "turn",
            otel.kind = "consumer",
            tenant.id = %fence.tenant,
            session.id = %fence.session,
            epoch = fence.epoch,
            attempt = taken.attempts,
        );
        let inputs = self.deps.store.list_inputs(fence.tenant, &fence.session, taken.input_ack);
        if let Ok(inputs) = answered(inputs).await {
            let newest = inputs.iter().rev().find_map(|input| input.traceparent.as_deref());
            rpc::trace::adopt_traceparent(&span, newest);
        }
        span
    }

    async fn release(&self, session: &SessionId, then: ReleaseTo) {
        released(&self.deps, session, then).await;
    }
}

/// Lets go of a session whose loop ended; `None`: by a panic.
async fn ended(deps: &Deps, (tenant, session): &Key, epoch: u64, end: Option<End>) {
    let then = match end {
        Some(End::Parked | End::Refused | End::Dropped) => ReleaseTo::Rest,
        Some(End::HandedOver) => ReleaseTo::Front,
        None => {
            tracing::error!("the loop panicked; the session is tried again");
            give_back(deps, *tenant, session, epoch).await;
            ReleaseTo::Front
        }
    };
    released(deps, session, then).await;
    if mutant::on(Mutant::WaitKeepsSlot) {
        children_ended(deps, *tenant, session).await;
    }
}

/// Waits while a session waits for its children: only for the mutant that keeps its slot meanwhile.
async fn children_ended(deps: &Deps, tenant: TenantId, session: &SessionId) {
    loop {
        match deps.store.get_session(tenant, session).await {
            Ok(session) if session.waiting_reason.as_deref() != Some(Reason::Children.as_str()) => return,
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(limits::POLL_MS)).await,
        }
    }
}

async fn released(deps: &Deps, session: &SessionId, then: ReleaseTo) {
    match deps.bus.release(session, &deps.incarnation.to_string(), then).await {
        Ok(queued_again) => {
            if queued_again || then == ReleaseTo::Front {
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
    if let Err(error) = answered(deps.store.fail_attempt(tenant, session, epoch)).await {
        tracing::error!(error = &error as &dyn std::error::Error, "give a session back");
    }
}
