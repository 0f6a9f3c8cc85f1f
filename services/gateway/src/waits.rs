//! Why a session waits: which limit holds it, how much of it is used, and for how long probably.

use crate::{grpc::from_store, state::State, state::now};
use domain::{ids::TenantId, limits, money::UsdPicos, session::Phase, wait::Reason};
use rpc::v1;
use store::{
    control::workers::Capacity,
    people::waits::{DescendantCounts, Usage},
    session::row::Session,
};
use tonic::Status;

/// What the waits of a tenant's sessions are measured by: read once for all sessions of an answer.
pub(crate) struct Limits {
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
    pub(crate) async fn of(state: &State, tenant: TenantId) -> Result<Self, Status> {
        let usage = state.store.get_usage(tenant).await.map_err(from_store)?;
        let capacity = state.store.get_capacity().await.map_err(from_store)?;
        // Without Redis nobody knows the pace of the queue.
        let interval_ms = state.bus.outlook(tenant).await.ok().and_then(|outlook| outlook.interval_ms);
        Ok(Self { usage, capacity, interval_ms })
    }

    /// Explains a wait; `None` for a session that does not wait.
    pub(crate) fn explain(&self, session: &Session) -> Option<v1::Wait> {
        let (reason, sentence, used, max) = match session.phase {
            Phase::Idle | Phase::Running => return None,
            Phase::Runnable => queued(session, self.usage, self.capacity),
            Phase::Waiting => waiting(session),
            Phase::Quarantined => {
                let detail = session.waiting_detail.clone().unwrap_or_default();
                ("quarantined".to_owned(), format!("an operator must release it: {detail}"), 0, 0)
            }
        };
        Some(v1::Wait {
            reason,
            sentence,
            used,
            max,
            position: session.queue_position,
            eta_ms: self.eta_ms(session),
            asking: 0,
            going_on: 0,
            queued_at_ms: session.queued_at.filter(|_| session.phase == Phase::Runnable).map_or(0, |at| at.0),
        })
    }

    /// When the wait is over, as far as can be told: its timer, or the pace at which the tenant's queue moves. 0: unknown.
    fn eta_ms(&self, session: &Session) -> i64 {
        match (session.phase, self.interval_ms) {
            (Phase::Waiting, _) => session.wake_at.map_or(0, |at| at.0),
            (Phase::Runnable, _) if self.capacity.workers == 0 => 0,
            (Phase::Runnable, Some(interval)) => {
                let wait = interval.saturating_mul(u64::from(session.queue_position));
                now().0.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX))
            }
            (Phase::Runnable | Phase::Idle | Phase::Running | Phase::Quarantined, _) => 0,
        }
    }
}

/// Adds to the wait for subtasks what is known of those.
pub(crate) fn add_below(wait: &mut v1::Wait, below: DescendantCounts) {
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    (wait.asking, wait.going_on) = (count(below.asking), count(below.going_on));
    match below.asking {
        0 => {}
        1 => wait.sentence.push_str("; a person must answer one"),
        asking => wait.sentence.push_str(&format!("; a person must answer {asking} of them")),
    }
}

/// The first limit that holds a session that waits for a worker.
fn queued(session: &Session, usage: Usage, capacity: Capacity) -> (String, String, u64, u64) {
    let (reason, sentence, used, max) = if capacity.workers == 0 {
        ("no_worker", "no worker is alive that takes sessions".to_owned(), 0, 0)
    } else if usage.running >= usage.running_max {
        let sentence = format!("the tenant runs {} sessions of {}", usage.running, usage.running_max);
        ("tenant_running", sentence, usage.running, usage.running_max)
    } else if capacity.running >= capacity.slots {
        let sentence =
            format!("all workers together run {} sessions of {}", capacity.running, capacity.slots);
        ("worker_slots", sentence, capacity.running, capacity.slots)
    } else if session.attempts >= limits::ATTEMPTS_SUSPECT {
        let sentence = format!(
            "its loop ended {} times without progress; such sessions go on one by one",
            session.attempts
        );
        ("suspect", sentence, 0, 0)
    } else {
        ("starting", "a worker is about to take it".to_owned(), 0, 0)
    };
    (reason.to_owned(), sentence, used, max)
}

fn waiting(session: &Session) -> (String, String, u64, u64) {
    let reason = session.waiting_reason.clone().unwrap_or_default();
    let detail = || session.waiting_detail.clone().unwrap_or_default();
    let sentence = match Reason::parse(&reason) {
        Some(Reason::Permission) => "somebody must allow or refuse a tool call".to_owned(),
        Some(Reason::Question) => "somebody must answer a question of the agent".to_owned(),
        Some(Reason::Budget) => {
            let (spent, max) = (session.tree_cost, session.budget.unwrap_or_default());
            let sentence = format!(
                "it and its subtasks spent ${:.4} of ${:.4}; somebody must raise the budget",
                spent.dollars(),
                max.dollars()
            );
            let picos = |amount: UsdPicos| u64::try_from(amount.0).unwrap_or(0);
            return (reason, sentence, picos(spent), picos(max));
        }
        Some(Reason::Children) => {
            let (over, all) = (session.children.finished, session.children.all);
            let sentence = format!("{over} of {all} subtasks are over");
            return (reason, sentence, over, all);
        }
        Some(Reason::BackOff) => "the model provider asked for a pause".to_owned(),
        Some(Reason::FailedAttempt) => {
            format!(
                "its loop ended {} times without progress; it is tried again after a pause",
                session.attempts
            )
        }
        Some(Reason::NewerWorker) => format!("a newer worker must go on: {}", detail()),
        None => detail(),
    };
    (reason, sentence, 0, 0)
}
