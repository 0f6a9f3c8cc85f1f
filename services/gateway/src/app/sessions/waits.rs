//! Why a session waits: the limit behind it, its usage, and an estimate of the wait.

use crate::{
    errors::error::Error,
    state::{State, now},
};
use domain::{
    ids::{TenantId, Timestamp},
    limits,
    money::UsdPicos,
    session::Phase,
    wait::Reason,
};
use store::{
    control::workers::Capacity,
    people::waits::{DescendantCounts, Usage},
    rows::session_row::{ChildCounts, Session},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    /// A stable word: one of `domain::wait::Reason` or of the queue.
    pub(crate) reason: String,
    /// The reason as a sentence for people.
    pub(crate) sentence: String,
    /// The usage of the limit; 0 if no limit holds the session.
    pub(crate) used: u64,
    /// The limit.
    pub(crate) max: u64,
    /// Position in the tenant's queue, from 1; otherwise 0.
    pub(crate) position: u32,
    /// An estimate of the end of the wait.
    pub(crate) ends_at: Option<Timestamp>,
    /// When the session was queued.
    pub(crate) queued_at: Option<Timestamp>,
    /// Subtasks that wait for a person.
    pub(crate) asking: u32,
    /// Subtasks that continue without a person.
    pub(crate) working: u32,
}

/// The limits of a tenant, read once for all sessions of a response.
pub(super) struct Limits {
    usage: Usage,
    capacity: Capacity,
    /// Time between two admissions of the tenant's sessions; milliseconds.
    interval_ms: Option<u64>,
}

impl Limits {
    /// Reads the limits of a tenant.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(super) async fn read(state: &State, tenant: TenantId) -> Result<Self, Error> {
        let usage = state.store.get_usage(tenant).await?;
        let capacity = state.store.get_capacity().await?;
        // The pace of the queue is in Redis. While Redis is down there is no estimate.
        let interval_ms = state.bus.outlook(tenant).await.ok().and_then(|outlook| outlook.interval_ms);
        Ok(Self { usage, capacity, interval_ms })
    }

    /// Explains a wait; `None` for a session that does not wait.
    pub(super) fn explain(&self, session: &Session) -> Option<Wait> {
        let Cause { reason, sentence, used, max } = match session.phase {
            Phase::Idle | Phase::Running => return None,
            Phase::Runnable => queued(session, self.usage, self.capacity),
            Phase::Waiting => waiting(session),
            Phase::Quarantined => {
                let detail = session.waiting_detail.clone().unwrap_or_default();
                Cause::new("quarantined", format!("an operator must release the session: {detail}"))
            }
        };
        Some(Wait {
            reason,
            sentence,
            used,
            max,
            position: session.queue_position,
            ends_at: self.ends_at(session),
            queued_at: session.queued_at.filter(|_| session.phase == Phase::Runnable),
            asking: 0,
            working: 0,
        })
    }

    /// The end of the wait: by its timer, or by the pace of the tenant's queue.
    fn ends_at(&self, session: &Session) -> Option<Timestamp> {
        match (session.phase, self.interval_ms) {
            (Phase::Waiting, _) => session.wake_at,
            (Phase::Runnable, _) if self.capacity.workers == 0 => None,
            (Phase::Runnable, Some(interval)) => {
                let wait = interval.saturating_mul(u64::from(session.queue_position));
                Some(Timestamp(now().0.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX))))
            }
            (Phase::Runnable | Phase::Idle | Phase::Running | Phase::Quarantined, _) => None,
        }
    }
}

impl Wait {
    /// Adds the state of the subtasks that the session waits for.
    pub(super) fn add_subtasks(&mut self, below: DescendantCounts) {
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        (self.asking, self.working) = (count(below.asking), count(below.going_on));
        match below.asking {
            0 => {}
            1 => self.sentence.push_str("; a person must answer one"),
            asking => self.sentence.push_str(&format!("; a person must answer {asking} of them")),
        }
    }
}

/// The cause of a wait, and the limit behind it.
struct Cause {
    reason: String,
    sentence: String,
    used: u64,
    max: u64,
}

impl Cause {
    fn new(reason: &str, sentence: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), sentence: sentence.into(), used: 0, max: 0 }
    }

    fn limit(self, used: u64, max: u64) -> Self {
        Self { used, max, ..self }
    }
}

/// The first limit that holds a session in the queue.
fn queued(session: &Session, usage: Usage, capacity: Capacity) -> Cause {
    if capacity.workers == 0 {
        Cause::new("no_worker", "no worker is available")
    } else if usage.running >= usage.running_max {
        let (running, max) = (usage.running, usage.running_max);
        Cause::new("tenant_running", format!("the tenant runs {running} of {max} sessions"))
            .limit(running, max)
    } else if capacity.running >= capacity.slots {
        let (running, slots) = (capacity.running, capacity.slots);
        Cause::new("worker_slots", format!("the workers run {running} of {slots} sessions"))
            .limit(running, slots)
    } else if session.attempts >= limits::ATTEMPTS_SUSPECT {
        let attempts = session.attempts;
        let sentence =
            format!("the session failed {attempts} times without progress; such sessions run one at a time");
        Cause::new("suspect", sentence)
    } else {
        Cause::new("starting", "a worker is about to start the session")
    }
}

fn waiting(session: &Session) -> Cause {
    let reason = session.waiting_reason.clone().unwrap_or_default();
    let detail = || session.waiting_detail.clone().unwrap_or_default();
    match Reason::parse(&reason) {
        Some(Reason::Permission) => Cause::new(&reason, "waiting for approval of a tool call"),
        Some(Reason::Question) => Cause::new(&reason, "waiting for the answer to a question"),
        Some(Reason::Budget) => {
            let (spent, max) = (session.tree_cost, session.budget.unwrap_or_default());
            let sentence = format!(
                "the session and its subtasks spent ${:.4} of ${:.4}; raise the budget to continue",
                spent.dollars(),
                max.dollars()
            );
            let picos = |amount: UsdPicos| u64::try_from(amount.0).unwrap_or(0);
            Cause::new(&reason, sentence).limit(picos(spent), picos(max))
        }
        Some(Reason::Children) => {
            let ChildCounts { finished, all } = session.children;
            Cause::new(&reason, format!("{finished} of {all} subtasks are done")).limit(finished, all)
        }
        Some(Reason::BackOff) => Cause::new(&reason, "the model provider asked for a pause"),
        Some(Reason::FailedAttempt) => {
            let attempts = session.attempts;
            let sentence =
                format!("the session failed {attempts} times without progress and will be retried later");
            Cause::new(&reason, sentence)
        }
        Some(Reason::NewerWorker) => Cause::new(&reason, format!("waiting for a newer worker: {}", detail())),
        None => Cause::new(&reason, detail()),
    }
}
