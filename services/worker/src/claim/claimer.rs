//! Takes sessions and starts their loops: claims fairly in Redis, then takes the session in Postgres.
// Continues in `turn`, which runs a session's loop.

use super::{drain::Drain, lease::Lease};
use crate::{
    config::Config,
    process::{
        clock::now, contention::Contention, control::Control, deps::Deps, store_timeout::with_store_timeout,
    },
    turn::run::{self, LoopEnd},
};
use bus::queue::{Claims, ReleaseTo};
use domain::{
    ids::{EventId, SessionId, TenantId},
    limits,
};
use futures::FutureExt as _;
use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use store::session::{
    mailbox::MailboxInput,
    quarantine::{Notice, QuarantineRule},
    runs::{SuspectPolicy, TakeOver, TakeResult, TakenSession},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub(super) type Key = (TenantId, SessionId);
/// How to nudge each running loop.
type Nudgers = HashMap<Key, watch::Sender<u64>>;

/// Takes sessions, within the slots of this worker.
pub(super) struct Claimer {
    pub(super) deps: Arc<Deps>,
    pub(super) lease: Lease,
    /// One permit for each loop that may run.
    pub(super) slots: Arc<Semaphore>,
    slots_max: usize,
    /// One permit: sessions whose loop ended more than once without progress run one at a time.
    suspects: Arc<Semaphore>,
    /// Additional slots for sessions that only need to be closed after an abort.
    aborts: Arc<Semaphore>,
    pub(super) contention: Arc<Contention>,
    running: Arc<Mutex<Nudgers>>,
    pub(super) tasks: chassis::tasks::Tasks,
    pub(super) drain: Drain,
    shutdown: CancellationToken,
    pub(super) health: chassis::admin::Health,
}

/// A taken session, with what its loop holds while it runs.
struct Start {
    taken: TakenSession,
    suspect_slot: Option<OwnedSemaphorePermit>,
}

impl Claimer {
    pub(super) fn new(config: &Config, deps: Arc<Deps>, lease: Lease, service: &chassis::Service) -> Self {
        let slots_max = usize::try_from(config.slots).unwrap_or(1);
        Self {
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
        }
    }

    /// Claims sessions from Redis as long as there are free slots.
    pub(super) async fn claim(self: &Arc<Self>) {
        while *self.lease.runs.borrow() && !self.drain.is_on() {
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return };
            match self.deps.bus.claim(&self.deps.incarnation.to_string(), 1).await {
                Ok(Claims::Some(claimed)) => match claimed.into_iter().next() {
                    Some(claimed) => self.take((claimed.tenant, claimed.session), slot),
                    None => return,
                },
                Ok(Claims::Empty) => return,
                Err(error) => {
                    return tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "cannot claim from Redis"
                    );
                }
            }
        }
    }

    /// Takes a session in Postgres and runs its loop, in a task of its own: no session waits until another one is read. Releases a session that
    /// another worker owns.
    pub(super) fn take(self: &Arc<Self>, key: Key, slot: OwnedSemaphorePermit) {
        // Record the session before it is taken: otherwise the sweep could mistake a starting session for an orphan.
        let (nudger, nudges) = watch::channel(0);
        if !self.note(&key, nudger) {
            // The loop already runs here, and Redis returned the session again.
            return;
        }
        let claimer = Arc::clone(self);
        self.tasks.spawn("loop", async move {
            let start = AssertUnwindSafe(Box::pin(claimer.take_in_postgres(&key))).catch_unwind().await;
            let has_run = matches!(start, Ok(Some(_)));
            match start {
                Ok(Some(start)) => claimer.run(&key, start, nudges).await,
                Ok(None) => {}
                Err(_) => {
                    tracing::error!(session.id = %key.1, "taking a session panicked; it will be retried");
                    claimer.forget(&key, ReleaseTo::Rest).await;
                }
            }
            // Ring the doorbell last: a claim before the slot is free finds none, and the next sweep comes a second
            // later.
            let was_full = claimer.slots.available_permits() == 0;
            drop(slot);
            if was_full || has_run {
                claimer.deps.bus.ring();
            }
        });
    }

    /// Takes a session in Postgres, or releases it.
    async fn take_in_postgres(&self, key: &Key) -> Option<Start> {
        let (tenant, session) = key;
        let take = |suspects| {
            let owner = self.deps.incarnation;
            with_store_timeout(self.deps.store.take_session(*tenant, session, owner, suspects))
        };
        let (mut taken, mut suspect_slot) = (take(SuspectPolicy::Skip).await, None);
        if let Ok(TakeResult::Suspect) = taken {
            // Acquired only for a suspect: if every take held the slot for a moment, suspects would be refused at random.
            suspect_slot = Arc::clone(&self.suspects).try_acquire_owned().ok();
            if suspect_slot.is_some() {
                taken = take(SuspectPolicy::Accept).await;
            }
        }
        match taken {
            Ok(TakeResult::Taken(taken)) => {
                let suspect_slot = suspect_slot.filter(|_| taken.take_over.is_suspect());
                return Some(Start { taken: *taken, suspect_slot });
            }
            Ok(TakeResult::Unavailable | TakeResult::Suspect) => self.forget(key, ReleaseTo::Rest).await,
            Ok(TakeResult::Exhausted { attempts }) => {
                self.quarantine(*tenant, session, attempts).await;
                self.forget(key, ReleaseTo::Rest).await;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, session.id = %session, "cannot take a session");
                self.forget(key, ReleaseTo::Front).await;
            }
        }
        None
    }

    /// Takes a session with an untaken abort and without a loop, beyond the slots.
    pub(super) fn close_aborted(self: &Arc<Self>, key: Key) {
        if !*self.lease.runs.borrow() || self.shutdown.is_cancelled() {
            return;
        }
        if let Ok(slot) = Arc::clone(&self.aborts).try_acquire_owned() {
            self.take(key, slot);
        }
    }

    /// Tells the loop of a session to read its mailbox. Returns false if the session has no loop here.
    pub(super) fn nudge(&self, key: &Key) -> bool {
        let running = self.running();
        let Some(nudger) = running.get(key) else { return false };
        nudger.send_modify(|count| *count += 1);
        true
    }

    /// Whether the loop of a session runs here.
    pub(super) fn is_running(&self, key: &Key) -> bool {
        self.running().contains_key(key)
    }

    /// The sessions whose loops run here.
    pub(super) fn running_sessions(&self) -> BTreeSet<Key> {
        self.running().keys().cloned().collect()
    }

    /// The number of loops that run in slots.
    pub(super) fn loops_running(&self) -> usize {
        self.slots_max - self.slots.available_permits()
    }

    /// The number of suspects that this worker could take now.
    pub(super) fn suspects_free(&self) -> usize {
        self.suspects.available_permits()
    }

    /// Waits until no loop runs. Cancel-safe.
    pub(super) async fn all_ended(&self) {
        let all = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // The semaphores are never closed.
        let _loops = self.slots.acquire_many(all(self.slots_max)).await;
        let _aborted = self.aborts.acquire_many(all(limits::ABORTS_PARALLEL_MAX)).await;
    }

    /// Tells Redis that this worker no longer has a session.
    pub(super) async fn release(&self, key: &Key, then: ReleaseTo) {
        release(&self.deps, key, then).await;
    }

    /// Makes a session runnable again after its loop ended without giving it up. The attempt counts.
    pub(super) async fn give_back(&self, key: &Key, epoch: u64) {
        give_back(&self.deps, key, epoch).await;
    }

    fn running(&self) -> MutexGuard<'_, Nudgers> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this worker handles a session. Returns false if it already does.
    fn note(&self, key: &Key, nudger: watch::Sender<u64>) -> bool {
        let mut running = self.running();
        if running.contains_key(key) {
            return false;
        }
        running.insert(key.clone(), nudger);
        true
    }

    async fn forget(&self, key: &Key, then: ReleaseTo) {
        self.running().remove(key);
        self.release(key, then).await;
    }

    /// Quarantines a session whose loop ended too often without progress, and tells the parent that waits for it.
    async fn quarantine(&self, tenant: TenantId, session: &SessionId, attempts: i16) {
        let reason = format!("its loop ended {attempts} times in a row without progress");
        let ids = [(); 3].map(|()| self.deps.id(EventId::make));
        let notice = Notice { reason: &reason, event_ids: ids, at: now() };
        let rule = QuarantineRule::Exhausted;
        match with_store_timeout(self.deps.store.quarantine(tenant, session, rule, notice)).await {
            Ok(Some(outcome)) => {
                metrics::counter!("flotilla_quarantines_total").increment(1);
                tracing::error!(tenant.id = %tenant, session.id = %session, "a session is quarantined: {reason}");
                self.deps.publisher.publish_events(tenant, session, &outcome.events);
                if let Some(parent) = &outcome.parent {
                    self.deps.interrupt(tenant, parent, outcome.class).await;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot quarantine a session");
            }
        }
    }

    /// Runs the loop of a taken session to its end.
    async fn run(&self, key: &Key, start: Start, nudges: watch::Receiver<u64>) {
        let Start { taken, suspect_slot } = start;
        let control = Control {
            nudges,
            leave: self.drain.leave(),
            lease: self.lease.runs.clone(),
            slots: Arc::clone(&self.slots),
            contention: Arc::clone(&self.contention),
            suspect_slot,
        };
        metrics::gauge!("flotilla_loops_running").increment(1.0);
        let epoch = taken.take_over.fence.epoch;
        let end = AssertUnwindSafe(self.turn(key, taken, control)).catch_unwind().await;
        metrics::gauge!("flotilla_loops_running").decrement(1.0);
        self.running().remove(key);
        // Boxed, so that it takes no memory while the loop waits for its model.
        Box::pin(let_go(&self.deps, key, epoch, end.ok())).await;
    }

    async fn turn(&self, key: &Key, taken: TakenSession, control: Control) -> LoopEnd {
        let kept = self.deps.kept.take(key.0, &key.1, Instant::now());
        let (position, take_over) = (kept.as_ref().map(|kept| &kept.position), taken.take_over.clone());
        let start = Box::pin(with_store_timeout(self.deps.store.read_loop_start(taken, position))).await;
        let span = span(&take_over, start.as_ref().map_or(&[], |start| &start.inputs));
        // The box hides the type of the future, which is too deep for the compiler to look through from here.
        run::run(Arc::clone(&self.deps), take_over, start, kept, control).instrument(span).boxed().await
    }
}

/// The span of a turn: a child of the span that sent the newest of its inputs.
fn span(taken: &TakeOver, inputs: &[MailboxInput]) -> tracing::Span {
    let fence = &taken.fence;
    let span = tracing::info_span!(
        "turn",
        otel.kind = "consumer",
        tenant.id = %fence.tenant,
        session.id = %fence.session,
        epoch = fence.epoch,
        attempt = taken.attempts,
    );
    rpc::trace::adopt_traceparent(&span, inputs.iter().rev().find_map(|input| input.traceparent.as_deref()));
    span
}

/// Releases a session whose loop ended; `None`: the loop panicked.
async fn let_go(deps: &Deps, key: &Key, epoch: u64, end: Option<LoopEnd>) {
    let then = match end {
        Some(LoopEnd::Parked | LoopEnd::Refused | LoopEnd::Dropped) => ReleaseTo::Rest,
        Some(LoopEnd::HandedOver) => ReleaseTo::Front,
        None => {
            tracing::error!("the loop panicked; the session will be retried");
            give_back(deps, key, epoch).await;
            ReleaseTo::Front
        }
    };
    release(deps, key, then).await;
}

async fn release(deps: &Deps, (tenant, session): &Key, then: ReleaseTo) {
    match deps.bus.release(*tenant, session, &deps.incarnation.to_string(), then).await {
        Ok(queued_again) => {
            if queued_again || then == ReleaseTo::Front {
                deps.bus.ring();
            }
        }
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot release a session in Redis");
        }
    }
}

async fn give_back(deps: &Deps, (tenant, session): &Key, epoch: u64) {
    if let Err(error) = with_store_timeout(deps.store.fail_attempt(*tenant, session, epoch)).await {
        tracing::error!(error = &error as &dyn std::error::Error, "cannot give a session back");
    }
}
