//! The loops of workers as state machines: their states, and the decision about the next step.

use super::{
    postgres::{Fence, Input, Park, Phase, Run, Session, Turn, Worker, Write},
    queue::ReleaseTo,
    rules::BrokenRule,
    scenario::Scenario,
};
use domain::{
    ids::{MessageId, Timestamp},
    session::Outcome,
    turn::{
        action::{Action, ParkReason},
        call::CallId,
        signal::{CallState, Signal},
        state::State,
        view::{LastStep, View},
    },
    wait::{Reason, Wait},
};
use std::collections::VecDeque;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    pub alive: bool,
    /// Whether it was asked to stop.
    pub draining: bool,
    /// Its slots.
    pub loops: Vec<Loop>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
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
    pub stage: Stage,
}

/// The next step of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Read,
    Plan(Plan),
    /// Store this write, which the fence admitted when this was the newest event: [`BrokenRule::FenceByReading`].
    Admitted(Plan, u64),
    /// Find out whether this write was stored.
    Doubt(Plan),
    /// Start the exec of the open step in the sandbox. The loop knows this state of the turn.
    Effect(Turn),
    AbortChild(Session),
}

/// A write that a loop plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    pub kind: Kind,
    pub write: Write,
}

/// The purpose of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A step starts; the intent of its effect is stored.
    Begin,
    Dispatch(Session),
    /// Answers of children are recorded.
    Collect,
    /// The step ends, and its prompts are answered.
    Finish,
    /// The turn ends by an abort.
    Close,
    Park(Park),
    /// The session is handed over to another worker.
    HandOver,
}

impl Loop {
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

/// Decides the next step of a loop that has read the row, from the stored state alone. The machine of the worker's turns decides; here it gets
/// whatever it needs at once.
pub(super) fn decide(scenario: &Scenario, runs: &[Run], at: &LoopState, draining: bool) -> Stage {
    let loop_ = ReadLoop { scenario, runs, at };
    let mut state = State::default();
    let mut actions = VecDeque::from(state.apply(Signal::Looked(loop_.view(draining)), Timestamp(0), 0.0));
    loop {
        let signal = match actions.pop_front().map(|action| loop_.perform(action)) {
            Some(Performed::Stage(stage)) => return stage,
            Some(Performed::Signal(signal)) => signal,
            Some(Performed::Nothing) => continue,
            None => panic!("the turn does nothing in {state:?}"),
        };
        actions.extend(state.apply(signal, Timestamp(0), 0.0));
    }
}

/// What an action of the turn is in this model.
enum Performed {
    /// The next step of the loop.
    Stage(Stage),
    /// Something that has happened at once.
    Signal(Signal),
    Nothing,
}

/// A loop that has read the row.
struct ReadLoop<'a> {
    scenario: &'a Scenario,
    runs: &'a [Run],
    at: &'a LoopState,
}

impl ReadLoop<'_> {
    fn run(&self) -> &Run {
        &self.runs[self.at.fence.session]
    }

    fn inputs(&self) -> &[Input] {
        self.run().inputs_after(self.at.acked)
    }

    fn children(&self) -> &[Session] {
        &self.scenario.children[self.at.fence.session]
    }

    /// The stored state, as the turn sees it.
    fn view(&self, draining: bool) -> View {
        let (run, turn) = (self.run(), self.run().turn);
        let newest = run.newest_prompt(run.input_seq);
        let step = |prompt, closed| LastStep {
            parent: message(prompt),
            answered: true,
            closed,
            continues: false,
            is_summary: false,
            overflowed: false,
            failed: (closed && turn.aborted).then_some(Outcome::Aborted),
            rejected: false,
            open: if closed { vec![] } else { self.open_calls(prompt) },
            retries: 0,
        };
        let ended = (turn.answered_to > 0).then(|| step(turn.answered_to, true));
        View {
            newest_user: (newest > 0).then(|| message(newest)),
            last: turn.open.map(|upto| step(upto, false)).or(ended),
            aborted: self.inputs().iter().any(|input| matches!(input, Input::Abort(_))),
            leaving: draining,
            ..View::default()
        }
    }

    /// The calls of the open step that have no stored answer: its children, and then its exec. In a session with children, they are the effect of
    /// the first turn.
    fn open_calls(&self, upto: u64) -> Vec<CallId> {
        let (children, answered) = (self.children(), self.run().turn.answered);
        let open = (0..children.len()).filter(|place| answered & 1 << place == 0);
        let open: Vec<CallId> = open.map(child_call).collect();
        let has_exec = open.is_empty() && (children.is_empty() || upto > 1);
        open.into_iter().chain(has_exec.then(|| EXEC.to_owned())).collect()
    }

    fn perform(&self, action: Action) -> Performed {
        let (run, turn) = (self.run(), self.run().turn);
        let plan = |kind, events, ack, turn, progress| {
            let write = Write { events, ack, progress, turn };
            Performed::Stage(Stage::Plan(Plan { kind, write }))
        };
        match action {
            Action::Fetch(need, _) => Performed::Signal(Signal::Ready(need)),
            Action::BeginStep { .. } => {
                let open = Some(run.newest_prompt(run.input_seq));
                plan(Kind::Begin, 1, run.input_seq, Turn { open, aborted: false, ..turn }, false)
            }
            Action::Run(calls) => self.run_calls(&calls),
            Action::Finish => Performed::Stage(finish(turn, turn.open.unwrap_or_default(), self.at.acked)),
            Action::Stop(_) => match self.uninformed_child() {
                Some(child) => Performed::Stage(Stage::AbortChild(child)),
                None => Performed::Signal(Signal::Stopped),
            },
            Action::Close(_) => {
                let answered_to = run.newest_prompt(run.input_seq).max(turn.answered_to);
                let closed = Turn { open: None, answered_to, aborted: true, ..turn };
                plan(Kind::Close, 1, run.input_seq, closed, true)
            }
            Action::Park(ParkReason::Idle(_)) => plan(Kind::Park(Park::Idle), 1, run.input_seq, turn, true),
            Action::Park(ParkReason::Wait(_)) => {
                plan(Kind::Park(Park::Waiting), 1, run.input_seq, turn, true)
            }
            Action::HandOver => plan(Kind::HandOver, 0, 0, turn, false),
            Action::Announce | Action::Prepare => Performed::Nothing,
            Action::Look
            | Action::Call
            | Action::Compact { .. }
            | Action::Summarize { .. }
            | Action::Resume
            | Action::BeginCalls
            | Action::BackOff { .. }
            | Action::Doubt => panic!("no part of this model: {action:?}"),
        }
    }

    /// A child that must learn of the abort.
    fn uninformed_child(&self) -> Option<Session> {
        if self.scenario.rules.is_broken(BrokenRule::AbortStaysUp) {
            return None;
        }
        let dispatched = &self.children()[..self.run().turn.dispatched];
        dispatched.iter().copied().find(|child| is_uninformed(&self.runs[*child]))
    }

    /// Collects the answers of children, creates those that are missing, and then waits for them, or starts the exec.
    fn run_calls(&self, calls: &[CallId]) -> Performed {
        let (run, turn, children) = (self.run(), self.run().turn, self.children());
        let plan = |kind, ack, turn, progress| {
            let write = Write { events: 1, ack, progress, turn };
            Performed::Stage(Stage::Plan(Plan { kind, write }))
        };
        let dispatch = |ack| {
            let dispatched = turn.dispatched + 1;
            plan(Kind::Dispatch(children[turn.dispatched]), ack, Turn { dispatched, ..turn }, false)
        };
        if turn.dispatched < children.len() && self.scenario.rules.is_broken(BrokenRule::AckUnnoted) {
            return dispatch(run.input_seq);
        }
        let news = self.inputs().iter().filter_map(|input| match input {
            Input::Answer(child) => children.iter().position(|own| own == child),
            Input::Prompt(_) | Input::Abort(_) => None,
        });
        let answered = news.fold(turn.answered, |bits, place| bits | 1 << place);
        if answered != turn.answered {
            return plan(Kind::Collect, run.input_seq, Turn { answered, ..turn }, true);
        }
        if turn.dispatched < children.len() {
            return dispatch(0);
        }
        let wait = CallState::Waits(Wait { reason: Reason::Children, until: None });
        let unanswered = calls.iter().filter(|call| *call != EXEC);
        let waits: Vec<_> = unanswered.map(|call| (call.clone(), wait)).collect();
        if waits.is_empty() {
            return Performed::Stage(Stage::Effect(turn));
        }
        Performed::Signal(Signal::Calls(waits))
    }
}

/// The call that runs a program.
const EXEC: &str = "exec";

fn child_call(place: usize) -> CallId {
    format!("child{place}")
}

fn message(prompt: u64) -> MessageId {
    format!("msg_{prompt}").parse().unwrap_or_else(|_| panic!("an id of a message"))
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
