//! The loops of workers as state machines: their states, and the decision about the next step.

use super::{
    postgres::{Fence, Input, Park, Phase, Run, Session, Turn, Worker, Write},
    queue::ReleaseTo,
    rules::BrokenRule,
    scenario::Scenario,
};

/// A worker process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Whether it runs.
    pub alive: bool,
    /// Whether it was asked to stop.
    pub draining: bool,
    /// Its slots.
    pub loops: Vec<Loop>,
}

/// A slot of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
    /// The worker.
    pub worker: Worker,
    /// The position of the slot.
    pub slot: usize,
}

/// The use of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loop {
    /// No session.
    Free,
    /// A session that was claimed; next the worker takes it in Postgres.
    Claimed(Session),
    /// A session that the worker runs.
    Running(LoopState),
    /// A session that the worker releases next in the queue.
    Leaving(Session, ReleaseTo),
    /// A session that waits and keeps its slot: [`BrokenRule::WaitingKeepsSlot`].
    Kept(Session),
    /// A child whose answer is delivered next: [`BrokenRule::AnswerAfterPark`].
    Delivering(Session),
}

/// The state of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoopState {
    /// The fence of its next write.
    pub fence: Fence,
    /// The newest input that is stored as taken.
    pub acked: u64,
    /// The newest input that the loop has read.
    pub seen: u64,
    /// Whether the session is a suspect.
    pub suspect: bool,
    /// The next step.
    pub stage: Stage,
}

/// The next step of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Read the stored state.
    Read,
    /// Store this write.
    Plan(Plan),
    /// Store this write, which the fence admitted when this was the newest event: [`BrokenRule::FenceByReading`].
    Admitted(Plan, u64),
    /// Find out whether this write was stored.
    Doubt(Plan),
    /// Start the exec of the open step in the sandbox. The loop knows this state of the turn.
    Effect(Turn),
    /// Abort a child.
    AbortChild(Session),
}

/// A write that a loop plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its purpose.
    pub kind: Kind,
    /// Its changes.
    pub write: Write,
}

/// The purpose of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A step starts; the intent of its effect is stored.
    Begin,
    /// A child is created.
    Dispatch(Session),
    /// Answers of children are recorded.
    Collect,
    /// The step ends, and its prompts are answered.
    Finish,
    /// The turn ends by an abort.
    Close,
    /// The loop ends.
    Park(Park),
    /// The session is handed over to another worker.
    HandOver,
}

impl Loop {
    /// Returns its session.
    pub fn session(&self) -> Option<Session> {
        match self {
            Self::Free => None,
            Self::Claimed(session)
            | Self::Leaving(session, _)
            | Self::Kept(session)
            | Self::Delivering(session) => Some(*session),
            Self::Running(at) => Some(at.fence.session),
        }
    }
}

/// Decides the next step of a loop that has read the row, from the stored state alone.
pub(super) fn decide(scenario: &Scenario, runs: &[Run], at: &LoopState, draining: bool) -> Stage {
    let run = &runs[at.fence.session];
    let (turn, input_seq) = (run.turn, run.input_seq);
    let inputs = run.inputs_after(at.acked);
    let children = &scenario.children[at.fence.session];
    let plan = |kind, ack, turn, progress| {
        let write = Write { events: 1, ack, progress, turn };
        Stage::Plan(Plan { kind, write })
    };
    if inputs.iter().any(|input| matches!(input, Input::Abort(_))) {
        let uninformed = children[..turn.dispatched].iter().find(|child| is_uninformed(&runs[**child]));
        if let Some(child) = uninformed.filter(|_| !scenario.rules.is_broken(BrokenRule::AbortStaysUp)) {
            return Stage::AbortChild(*child);
        }
        let answered_to = run.newest_prompt(input_seq).max(turn.answered_to);
        return plan(Kind::Close, input_seq, Turn { open: None, answered_to, aborted: true, ..turn }, true);
    }
    if draining {
        let write = Write { events: 0, ack: 0, progress: false, turn };
        return Stage::Plan(Plan { kind: Kind::HandOver, write });
    }
    let Some(upto) = turn.open else {
        let newest = run.newest_prompt(input_seq);
        if newest > turn.answered_to {
            return plan(Kind::Begin, input_seq, Turn { open: Some(newest), aborted: false, ..turn }, false);
        }
        return plan(Kind::Park(Park::Idle), input_seq, turn, true);
    };
    let news = inputs.iter().filter_map(|input| match input {
        Input::Answer(child) => children.iter().position(|own| own == child),
        Input::Prompt(_) | Input::Abort(_) => None,
    });
    let answered = news.fold(turn.answered, |bits, place| bits | 1 << place);
    let dispatch = |ack| {
        let dispatched = turn.dispatched + 1;
        plan(Kind::Dispatch(children[turn.dispatched]), ack, Turn { dispatched, ..turn }, false)
    };
    if turn.dispatched < children.len() && scenario.rules.is_broken(BrokenRule::AckUnnoted) {
        return dispatch(input_seq);
    }
    if answered != turn.answered {
        return plan(Kind::Collect, input_seq, Turn { answered, ..turn }, true);
    }
    if turn.dispatched < children.len() {
        return dispatch(0);
    }
    if answered.count_ones() < u32::try_from(children.len()).unwrap_or(u32::MAX) {
        return plan(Kind::Park(Park::Waiting), input_seq, turn, true);
    }
    // In a session with children, they are the effect of the first turn.
    if children.is_empty() || upto > 1 { Stage::Effect(turn) } else { finish(turn, upto, at.acked) }
}

/// Plans the end of a step.
pub(super) fn finish(turn: Turn, upto: u64, ack: u64) -> Stage {
    let turn = Turn { open: None, answered_to: upto, ..turn };
    Stage::Plan(Plan { kind: Kind::Finish, write: Write { events: 1, ack, progress: true, turn } })
}

/// Returns whether a child is active and its mailbox contains no abort.
pub(super) fn is_uninformed(child: &Run) -> bool {
    let works = !matches!(child.phase, Phase::Idle | Phase::Quarantined);
    child.exists && works && child.cancel_seq == 0
}
