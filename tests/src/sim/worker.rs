//! The loops of workers as state machines. A step is one message to one server and its answer; between two steps
//! anything else may happen.

use super::{
    System,
    observer::Property,
    postgres::{Accepted, Fence, Input, Park, Phase, Run, Session, Take, Turn, Worker, Write, Written},
    queue::Then,
    rules::Broken,
    sandbox::Started,
    scenario::Scenario,
};

/// A process of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Whether it runs.
    pub alive: bool,
    /// Whether it was asked to stop.
    pub draining: bool,
    /// Its slots.
    pub loops: Vec<Loop>,
}

/// What a slot is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loop {
    /// Nothing.
    Free,
    /// A session that was claimed and is to be taken in Postgres.
    Claimed(Session),
    /// A session that was taken.
    At(At),
    /// A session that is to be released in the queue.
    Leaving(Session, Then),
    /// A session that waits and keeps its slot: [`Broken::WaitingKeepsSlot`].
    Kept(Session),
    /// A child whose answer is still to be delivered: [`Broken::AnswerAfterPark`].
    Delivering(Session),
}

/// Where a loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    /// The right to do the next write.
    pub fence: Fence,
    /// The newest input that is stored as taken.
    pub acked: u64,
    /// The newest input that the loop has looked at.
    pub seen: u64,
    /// Whether the session was tried often.
    pub suspect: bool,
    /// What comes next.
    pub stage: Stage,
}

/// What a loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Look at what is stored.
    Look,
    /// Store this.
    Plan(Plan),
    /// Store this, which was admitted when the newest event was that: [`Broken::FenceByReading`].
    Admitted(Plan, u64),
    /// Find out whether this was stored.
    Doubt(Plan),
    /// Have the sandbox start the exec of the open step; this is what the loop knows of the turn.
    Effect(Turn),
    /// Tell a child of the abort.
    AbortChild(Session),
}

/// Something to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// What for.
    pub kind: Kind,
    /// With these changes.
    pub write: Write,
}

/// What a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A step begins; the intent of its effect is stored.
    Begin,
    /// A child is made.
    Dispatch(Session),
    /// Answers of children are noted.
    Collect,
    /// The step ends, and its prompts are answered.
    Finish,
    /// The turn ends by an abort.
    Close,
    /// The loop ends.
    Park(Park),
    /// Another worker shall go on.
    HandOver,
}

impl Loop {
    /// The session that it has to do with.
    pub fn session(&self) -> Option<Session> {
        match self {
            Self::Free => None,
            Self::Claimed(session)
            | Self::Leaving(session, _)
            | Self::Kept(session)
            | Self::Delivering(session) => Some(*session),
            Self::At(at) => Some(at.fence.session),
        }
    }
}

/// What a loop does that has looked at the row: level-triggered, from what is stored alone.
fn decide(scenario: &Scenario, runs: &[Run], at: &At, draining: bool) -> Stage {
    let run = &runs[at.fence.session];
    let (turn, seen) = (run.turn, run.input_seq);
    let inputs = run.inputs_after(at.acked);
    let children = &scenario.children[at.fence.session];
    let plan = |kind, ack, turn, progress| {
        let write = Write { events: 1, ack, progress, turn };
        Stage::Plan(Plan { kind, write })
    };
    if inputs.iter().any(|input| matches!(input, Input::Abort(_))) {
        let uninformed = children[..turn.dispatched].iter().find(|child| is_uninformed(&runs[**child]));
        if let Some(child) = uninformed.filter(|_| !scenario.rules.lack(Broken::AbortStaysUp)) {
            return Stage::AbortChild(*child);
        }
        let answered_to = run.newest_prompt(seen).max(turn.answered_to);
        return plan(Kind::Close, seen, Turn { open: None, answered_to, aborted: true, ..turn }, true);
    }
    if draining {
        let write = Write { events: 0, ack: 0, progress: false, turn };
        return Stage::Plan(Plan { kind: Kind::HandOver, write });
    }
    let Some(upto) = turn.open else {
        let newest = run.newest_prompt(seen);
        if newest > turn.answered_to {
            return plan(Kind::Begin, seen, Turn { open: Some(newest), aborted: false, ..turn }, false);
        }
        return plan(Kind::Park(Park::Idle), seen, turn, true);
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
    if turn.dispatched < children.len() && scenario.rules.lack(Broken::AckUnnoted) {
        return dispatch(seen);
    }
    if answered != turn.answered {
        return plan(Kind::Collect, seen, Turn { answered, ..turn }, true);
    }
    if turn.dispatched < children.len() {
        return dispatch(0);
    }
    if answered.count_ones() < u32::try_from(children.len()).unwrap_or(u32::MAX) {
        return plan(Kind::Park(Park::Waiting), seen, turn, true);
    }
    // What children did is the first turn's effect.
    if children.is_empty() || upto > 1 { Stage::Effect(turn) } else { finish(turn, upto, at.acked) }
}

fn finish(turn: Turn, upto: u64, ack: u64) -> Stage {
    let turn = Turn { open: None, answered_to: upto, ..turn };
    Stage::Plan(Plan { kind: Kind::Finish, write: Write { events: 1, ack, progress: true, turn } })
}

/// Whether a child works and no abort stands in its mailbox.
fn is_uninformed(child: &Run) -> bool {
    let works = !matches!(child.phase, Phase::Idle | Phase::Quarantined);
    child.exists && works && child.cancel_seq == 0
}

impl System {
    /// Does the next step of a loop.
    pub(super) fn step(&mut self, scenario: &Scenario, worker: Worker, slot: usize) {
        let rules = &scenario.rules;
        match self.workers[worker].loops[slot] {
            Loop::Free => {}
            Loop::Claimed(session) => {
                self.take(scenario, (worker, slot), session);
            }
            Loop::Leaving(session, then) => {
                self.queue.release(rules, session, worker, then);
                self.workers[worker].loops[slot] = Loop::Free;
            }
            Loop::Kept(session) => self.workers[worker].loops[slot] = Loop::Claimed(session),
            Loop::Delivering(session) => {
                self.postgres.deliver(rules, session);
                self.workers[worker].loops[slot] = Loop::Leaving(session, Then::Rest);
            }
            Loop::At(at) => self.advance(scenario, (worker, slot), at),
        }
    }

    /// Takes a claimed session in Postgres.
    pub(super) fn take(
        &mut self,
        scenario: &Scenario,
        (worker, slot): (Worker, usize),
        session: Session,
    ) -> Take {
        let loops = &self.workers[worker].loops;
        let has_suspect = loops.iter().any(|other| matches!(other, Loop::At(at) if at.suspect));
        let counts = scenario.rules.lack(Broken::EpochFromRedis) && self.postgres.is_free(session);
        let token = counts.then(|| self.queue.next_token(session));
        let limits = (scenario.attempts, has_suspect);
        let take = self.postgres.take(&scenario.rules, (session, worker), limits, token);
        self.workers[worker].loops[slot] = match take {
            Take::Yes { epoch, input_ack, attempts } => {
                self.observer.taken(session, epoch);
                Loop::At(At {
                    fence: Fence { session, epoch, write_seq: 1 },
                    acked: input_ack,
                    seen: input_ack,
                    suspect: attempts > scenario.attempts.suspect,
                    stage: Stage::Look,
                })
            }
            Take::No | Take::Suspect => Loop::Leaving(session, Then::Rest),
            Take::Exhausted => {
                if self.postgres.quarantine(&scenario.rules, session, scenario.attempts) {
                    let run = &self.postgres.runs[session];
                    let (epoch, first) = (run.epoch, run.event_seq - 2);
                    self.observer.withdrawn(session, epoch, scenario.poison == Some(session));
                    self.observer.numbered(session, first, 3);
                    self.hint_parent(session);
                }
                Loop::Leaving(session, Then::Rest)
            }
        };
        take
    }

    fn advance(&mut self, scenario: &Scenario, place: (Worker, usize), at: At) {
        let next = match at.stage {
            Stage::Look => {
                let draining = self.workers[place.0].draining;
                let stage = decide(scenario, &self.postgres.runs, &at, draining);
                Loop::At(At { seen: self.postgres.runs[at.fence.session].input_seq, stage, ..at })
            }
            Stage::Plan(plan) if scenario.rules.lack(Broken::FenceByReading) && plan.kind == Kind::Finish => {
                if self.postgres.admits(&scenario.rules, at.fence) {
                    let event_seq = self.postgres.runs[at.fence.session].event_seq;
                    Loop::At(At { stage: Stage::Admitted(plan, event_seq), ..at })
                } else {
                    Loop::Leaving(at.fence.session, Then::Rest)
                }
            }
            Stage::Plan(plan) | Stage::Doubt(plan) => {
                let written = self.commit(scenario, at.fence, &plan);
                self.written(scenario, at, (plan, written))
            }
            Stage::Admitted(plan, event_seq) => {
                let store = &mut self.postgres;
                let written = store.append_admitted(&scenario.rules, at.fence, &plan.write, event_seq);
                self.observe(scenario, at.fence, (&plan, written));
                self.written(scenario, at, (plan, written))
            }
            Stage::Effect(_) if scenario.poison == Some(at.fence.session) => return self.crash(place.0),
            Stage::Effect(turn) => self.act(scenario, at, turn),
            Stage::AbortChild(child) => {
                if self.postgres.accept_abort(&scenario.rules, child, 0) == Accepted::Wakes {
                    self.hints.insert(child);
                }
                Loop::At(At { stage: Stage::Look, ..at })
            }
        };
        self.workers[place.0].loops[place.1] = next;
    }

    fn act(&mut self, scenario: &Scenario, at: At, turn: Turn) -> Loop {
        let Fence { session, epoch, .. } = at.fence;
        let Some(upto) = turn.open else { return Loop::At(At { stage: Stage::Look, ..at }) };
        let started = self.sandbox.start(&scenario.rules, session, epoch, upto);
        if started == Started::Stale {
            return Loop::Leaving(session, Then::Rest);
        }
        self.observer.acted(session, epoch, upto, started == Started::Now);
        Loop::At(At { stage: finish(turn, upto, at.acked), ..at })
    }

    /// Stores a plan in one transaction.
    pub(super) fn commit(&mut self, scenario: &Scenario, fence: Fence, plan: &Plan) -> Written {
        let (rules, store) = (&scenario.rules, &mut self.postgres);
        let written = match plan.kind {
            Kind::Begin | Kind::Collect | Kind::Finish | Kind::Close => {
                store.append(rules, fence, &plan.write)
            }
            Kind::Dispatch(child) => store.dispatch(rules, fence, &plan.write, child),
            Kind::Park(park) => store.park(rules, fence, &plan.write, park),
            Kind::HandOver => {
                store.hand_over(fence.session, fence.epoch);
                Written::Before
            }
        };
        self.observe(scenario, fence, (plan, written));
        written
    }

    fn observe(&mut self, scenario: &Scenario, fence: Fence, (plan, written): (&Plan, Written)) {
        let Written::Now(first) = written else { return };
        let session = fence.session;
        self.observer.written(fence);
        self.observer.numbered(session, first, plan.write.events);
        let turn = plan.write.turn;
        match plan.kind {
            Kind::Finish => self.observer.answered(session, turn.answered_to),
            Kind::Close => self.observer.closed(session, turn.answered_to),
            Kind::Dispatch(child) => {
                self.hints.insert(child);
                let made = self.postgres.runs[child].event_seq;
                self.observer.numbered(child, 1, made);
            }
            Kind::Park(Park::Idle) => {
                self.hint_parent(session);
                if turn.aborted {
                    let children = &scenario.children[session][..turn.dispatched];
                    let left = children
                        .iter()
                        .map(|child| &self.postgres.runs[*child])
                        .any(|child| is_uninformed(child) && child.turn.answered_to == 0);
                    self.observer.demand(!left, Property::AbortReachesChildren);
                }
            }
            Kind::Begin | Kind::Collect | Kind::Park(_) | Kind::HandOver => {}
        }
    }

    /// What a loop does after a write.
    fn written(&self, scenario: &Scenario, at: At, (plan, written): (Plan, Written)) -> Loop {
        let session = at.fence.session;
        let rest = Loop::Leaving(session, Then::Rest);
        let keeps = scenario.rules.lack(Broken::WaitingKeepsSlot);
        match (plan.kind, written) {
            (Kind::HandOver, _) => Loop::Leaving(session, Then::Front),
            (_, Written::Fenced) => rest,
            (_, Written::NewInput) => Loop::At(At { stage: Stage::Look, ..at }),
            (Kind::Park(Park::Idle), _) if scenario.rules.lack(Broken::AnswerAfterPark) => {
                Loop::Delivering(session)
            }
            (Kind::Park(Park::Waiting | Park::BackOff), _) if keeps => Loop::Kept(session),
            (Kind::Park(_), _) => rest,
            (Kind::Begin | Kind::Dispatch(_) | Kind::Collect | Kind::Finish | Kind::Close, _) => {
                let fence = Fence { write_seq: at.fence.write_seq + 1, ..at.fence };
                let acked = at.acked.max(plan.write.ack);
                let stage = if plan.kind == Kind::Begin && scenario.children[session].is_empty() {
                    Stage::Effect(plan.write.turn)
                } else {
                    Stage::Look
                };
                Loop::At(At { fence, acked, stage, ..at })
            }
        }
    }
}
