//! The steps of workers. A step is one message to one server and its answer; between two steps any other step may happen.

use super::{
    observer::Property,
    postgres::{AcceptResult, Fence, Park, Session, TakeLimits, TakeResult, Turn, Worker, WriteResult},
    queue::ReleaseTo,
    rules::BrokenRule,
    sandbox::StartResult,
    scenario::Scenario,
    system::System,
    worker::{Kind, Loop, LoopState, Plan, SlotId, Stage, decide, finish, is_uninformed},
};

impl System {
    /// Performs the next step of a loop.
    pub(super) fn step(&mut self, scenario: &Scenario, worker: Worker, slot: usize) {
        let rules = &scenario.rules;
        match self.workers[worker].loops[slot] {
            Loop::Free => {}
            Loop::Claimed(session) => {
                self.take(scenario, SlotId { worker, slot }, session);
            }
            Loop::Leaving(session, then) => {
                self.queue.release(rules, session, worker, then);
                self.workers[worker].loops[slot] = Loop::Free;
            }
            Loop::Kept(session) => self.workers[worker].loops[slot] = Loop::Claimed(session),
            Loop::Delivering(session) => {
                self.postgres.deliver(rules, session);
                self.workers[worker].loops[slot] = Loop::Leaving(session, ReleaseTo::Rest);
            }
            Loop::Running(at) => self.advance(scenario, SlotId { worker, slot }, at),
        }
    }

    /// Takes a claimed session in Postgres.
    pub(super) fn take(
        &mut self,
        scenario: &Scenario,
        SlotId { worker, slot }: SlotId,
        session: Session,
    ) -> TakeResult {
        let loops = &self.workers[worker].loops;
        let has_suspect = loops.iter().any(|other| matches!(other, Loop::Running(at) if at.suspect));
        let uses_token =
            scenario.rules.is_broken(BrokenRule::EpochFromRedis) && self.postgres.is_free(session);
        let token = uses_token.then(|| self.queue.next_token(session));
        let limits = TakeLimits { attempts: scenario.attempts, has_suspect };
        let take = self.postgres.take(&scenario.rules, session, worker, limits, token);
        self.workers[worker].loops[slot] = match take {
            TakeResult::Yes { epoch, input_ack, attempts } => {
                self.observer.takeover(session, epoch);
                Loop::Running(LoopState {
                    fence: Fence { session, epoch, write_seq: 1 },
                    acked: input_ack,
                    seen: input_ack,
                    suspect: attempts > scenario.attempts.suspect,
                    stage: Stage::Read,
                })
            }
            TakeResult::No | TakeResult::Suspect => Loop::Leaving(session, ReleaseTo::Rest),
            TakeResult::Exhausted => {
                if self.postgres.quarantine(&scenario.rules, session, scenario.attempts) {
                    let run = &self.postgres.runs[session];
                    let (epoch, first) = (run.epoch, run.event_seq - 2);
                    self.observer.quarantine(session, epoch, scenario.poison == Some(session));
                    self.observer.events(session, first, 3);
                    self.hint_parent(session);
                }
                Loop::Leaving(session, ReleaseTo::Rest)
            }
        };
        take
    }

    fn advance(&mut self, scenario: &Scenario, id: SlotId, at: LoopState) {
        let next = match at.stage {
            Stage::Read => {
                let draining = self.workers[id.worker].draining;
                let stage = decide(scenario, &self.postgres.runs, &at, draining);
                Loop::Running(LoopState { seen: self.postgres.runs[at.fence.session].input_seq, stage, ..at })
            }
            Stage::Plan(plan)
                if scenario.rules.is_broken(BrokenRule::FenceByReading) && plan.kind == Kind::Finish =>
            {
                if self.postgres.admits(&scenario.rules, at.fence) {
                    let event_seq = self.postgres.runs[at.fence.session].event_seq;
                    Loop::Running(LoopState { stage: Stage::Admitted(plan, event_seq), ..at })
                } else {
                    Loop::Leaving(at.fence.session, ReleaseTo::Rest)
                }
            }
            Stage::Plan(plan) | Stage::Doubt(plan) => {
                let written = self.commit(scenario, at.fence, &plan);
                self.after_write(scenario, at, &plan, written)
            }
            Stage::Admitted(plan, event_seq) => {
                let store = &mut self.postgres;
                let written = store.append_admitted(&scenario.rules, at.fence, &plan.write, event_seq);
                self.observe(scenario, at.fence, &plan, written);
                self.after_write(scenario, at, &plan, written)
            }
            Stage::Effect(_) if scenario.poison == Some(at.fence.session) => return self.crash(id.worker),
            Stage::Effect(turn) => self.act(scenario, at, turn),
            Stage::AbortChild(child) => {
                if self.postgres.accept_abort(&scenario.rules, child, 0) == AcceptResult::Wakes {
                    self.hints.insert(child);
                }
                Loop::Running(LoopState { stage: Stage::Read, ..at })
            }
        };
        self.workers[id.worker].loops[id.slot] = next;
    }

    fn act(&mut self, scenario: &Scenario, at: LoopState, turn: Turn) -> Loop {
        let Fence { session, epoch, .. } = at.fence;
        let Some(upto) = turn.open else { return Loop::Running(LoopState { stage: Stage::Read, ..at }) };
        let started = self.sandbox.start(&scenario.rules, session, epoch, upto);
        if started == StartResult::Stale {
            return Loop::Leaving(session, ReleaseTo::Rest);
        }
        self.observer.exec(session, epoch, upto, started == StartResult::Now);
        Loop::Running(LoopState { stage: finish(turn, upto, at.acked), ..at })
    }

    /// Stores a plan in one transaction.
    pub(super) fn commit(&mut self, scenario: &Scenario, fence: Fence, plan: &Plan) -> WriteResult {
        let (rules, store) = (&scenario.rules, &mut self.postgres);
        let written = match plan.kind {
            Kind::Begin | Kind::Collect | Kind::Finish | Kind::Close => {
                store.append(rules, fence, &plan.write)
            }
            Kind::Dispatch(child) => store.dispatch(rules, fence, &plan.write, child),
            Kind::Park(park) => store.park(rules, fence, &plan.write, park),
            Kind::HandOver => {
                store.hand_over(fence.session, fence.epoch);
                WriteResult::Before
            }
        };
        self.observe(scenario, fence, plan, written);
        written
    }

    fn observe(&mut self, scenario: &Scenario, fence: Fence, plan: &Plan, written: WriteResult) {
        let WriteResult::Now(first) = written else { return };
        let session = fence.session;
        self.observer.write(fence);
        self.observer.events(session, first, plan.write.events);
        let turn = plan.write.turn;
        match plan.kind {
            Kind::Finish => self.observer.answer(session, turn.answered_to),
            Kind::Close => self.observer.abort(session, turn.answered_to),
            Kind::Dispatch(child) => {
                self.hints.insert(child);
                let event_seq = self.postgres.runs[child].event_seq;
                self.observer.events(child, 1, event_seq);
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

    /// Returns the state of a slot after a write.
    fn after_write(&self, scenario: &Scenario, at: LoopState, plan: &Plan, written: WriteResult) -> Loop {
        let session = at.fence.session;
        let rest = Loop::Leaving(session, ReleaseTo::Rest);
        let keeps = scenario.rules.is_broken(BrokenRule::WaitingKeepsSlot);
        match (plan.kind, written) {
            (Kind::HandOver, _) => Loop::Leaving(session, ReleaseTo::Front),
            (_, WriteResult::Fenced) => rest,
            (_, WriteResult::NewInput) => Loop::Running(LoopState { stage: Stage::Read, ..at }),
            (Kind::Park(Park::Idle), _) if scenario.rules.is_broken(BrokenRule::AnswerAfterPark) => {
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
                    Stage::Read
                };
                Loop::Running(LoopState { fence, acked, stage, ..at })
            }
        }
    }
}
