//! The actions that can happen next, and their effect. Actions without a fault happen by themselves in a healthy system; each
//! fault has a budget.

use super::{
    postgres::{AcceptResult, Fence, Park, Phase, Session, TakeResult, Worker, Write},
    queue::ReleaseTo,
    rules::BrokenRule,
    scenario::{ClientAction, Faults, Scenario},
    system::System,
    worker::{Kind, Loop, LoopState, Plan, SlotId, Stage},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// An action of a client reaches Postgres, and the answer reaches the client.
    Client(usize),
    /// A hint reaches the queue.
    Hint(Session),
    Claim(Worker, Session),
    /// A loop performs its next step.
    Step(Worker, usize),
    /// A drained worker without sessions exits.
    Stop(Worker),
    Start,
    /// A worker renews its leases.
    Renew(Worker),
    /// The lease of a dead worker expires in Postgres.
    LapseInPostgres(Worker),
    /// The lease of a dead worker expires in Redis.
    LapseInRedis(Worker),
    /// The sweeper queues a session whose hint was lost.
    Sweep(Session),
    Wake(Session),
    /// The sessions that dead workers hold in the queue are queued again.
    Reap,
    /// A worker reads Postgres to refill an emptied queue.
    ReadForRefill,
    /// The worker refills the queue with these rows.
    Refill,
    /// A worker gives back a session that it owns in Postgres but does not run.
    GiveBack(Worker, Session),
    /// A worker releases a session that it holds in the queue but does not run.
    Tidy(Worker, Session),
    Fault(Fault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    Crash(Worker),
    /// The lease of a living worker expires in Postgres.
    PauseInPostgres(Worker),
    /// The lease of a living worker expires in Redis.
    PauseInRedis(Worker),
    Flush,
    /// An action of a client is stored, but the answer is lost. The client repeats it.
    ClientAnswerLost(usize),
    /// A write of a loop is stored, but the answer is lost.
    CommitAnswerLost(Worker, usize),
    /// A takeover is stored, but the answer is lost.
    TakeAnswerLost(Worker, usize),
    /// A loop gives up a write whose outcome is in doubt.
    GiveUp(Worker, usize),
    /// A claim succeeds, but the answer is lost.
    ClaimAnswerLost(Worker, Session),
    /// A release does not reach the queue.
    ReleaseLost(Worker, usize),
    HintLost(Session),
    /// A hint is delivered, and will be delivered again.
    HintRepeated(Session),
    /// The worker that refills the queue crashes.
    RefillLost,
    Drain(Worker),
    /// A loop yields its slot at a step boundary.
    Yield(Worker, usize),
    /// A loop waits for its provider without a slot.
    BackOff(Worker, usize),
    /// A worker claims a session from Postgres, because Redis is down.
    ClaimDirectly(Worker, Session),
}

impl Action {
    /// Returns whether it is a fault.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

impl System {
    /// Lists the next possible actions into `actions`.
    pub fn list_actions(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        actions.clear();
        let rules = &scenario.rules;
        let client_actions = scenario.client_actions.iter().enumerate();
        let open = client_actions
            .filter(|(number, action)| !self.done[*number] && self.postgres.runs[action.session()].exists);
        actions.extend(open.map(|(number, _)| Action::Client(number)));
        actions.extend(self.hints.iter().map(Action::Hint));
        if self.workers.iter().filter(|worker| worker.alive).count() < scenario.workers {
            actions.push(Action::Start);
        }
        for session in 0..self.postgres.runs.len() {
            if rules.sweeps && self.is_unannounced(session) {
                actions.push(Action::Sweep(session));
            }
            if self.postgres.runs[session].wakes {
                actions.push(Action::Wake(session));
            }
        }
        if rules.reaps && self.queue.holds.iter().flatten().any(|hold| !self.queue.alive[hold.owner]) {
            actions.push(Action::Reap);
        }
        if !self.queue.complete && rules.sweeps {
            actions.push(if self.refill.is_some() { Action::Refill } else { Action::ReadForRefill });
        }
        for worker in 0..self.workers.len() {
            self.list_worker_actions(scenario, worker, actions);
        }
        self.list_faults(scenario, actions);
    }

    /// Returns whether a session needs a worker, but the queue does not contain it.
    fn is_unannounced(&self, session: Session) -> bool {
        let is_free = self.postgres.runs[session].exists && self.postgres.is_free(session);
        let is_known = match self.queue.holds[session] {
            Some(hold) => self.queue.alive[hold.owner] && hold.dirty,
            None => self.queue.ready[session],
        };
        is_free && !is_known && self.queue.complete
    }

    fn list_worker_actions(&self, scenario: &Scenario, worker: Worker, actions: &mut Vec<Action>) {
        let process = &self.workers[worker];
        if !process.alive {
            if self.postgres.leases[worker] {
                actions.push(Action::LapseInPostgres(worker));
            }
            if self.queue.alive[worker] {
                actions.push(Action::LapseInRedis(worker));
            }
            return;
        }
        if !self.postgres.leases[worker] || !self.queue.alive[worker] {
            actions.push(Action::Renew(worker));
        }
        let has_slot = process.loops.contains(&Loop::Free);
        if process.draining && process.loops.iter().all(|slot| *slot == Loop::Free) {
            actions.push(Action::Stop(worker));
        }
        for (slot, state) in process.loops.iter().enumerate() {
            let sleeps = matches!(state, Loop::Kept(session)
                if self.postgres.runs[*session].phase != Phase::Runnable);
            if *state != Loop::Free && !sleeps {
                actions.push(Action::Step(worker, slot));
            }
        }
        for session in 0..self.postgres.runs.len() {
            if has_slot && !process.draining && self.queue.may_claim(session, scenario.cap) {
                actions.push(Action::Claim(worker, session));
            }
            let holds = self.queue.holds[session].is_some_and(|hold| hold.owner == worker);
            let uses = process.loops.iter().any(|slot| slot.session() == Some(session));
            if holds && !uses && !scenario.rules.is_broken(BrokenRule::QueueStraysStay) {
                actions.push(Action::Tidy(worker, session));
            }
            if self.is_stray(worker, session) && !scenario.rules.is_broken(BrokenRule::StraysStay) {
                actions.push(Action::GiveBack(worker, session));
            }
        }
    }

    /// Returns whether a worker owns a session in Postgres that it does not run.
    fn is_stray(&self, worker: Worker, session: Session) -> bool {
        let run = &self.postgres.runs[session];
        let runs = |slot: &Loop| matches!(slot, Loop::Running(at) if at.fence.session == session);
        run.phase == Phase::Running
            && run.owner == Some(worker)
            && !self.workers[worker].loops.iter().any(runs)
    }

    fn list_faults(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        let Faults {
            crashes,
            pauses,
            flushes,
            lost_commits,
            lost_calls,
            lost_hints,
            repeated_hints,
            drains,
            yields,
            direct_claims,
        } = self.faults;
        let mut push = |budget: u8, fault| {
            if budget > 0 {
                actions.push(Action::Fault(fault));
            }
        };
        if self.queue.complete {
            push(flushes, Fault::Flush);
        } else if self.refill.is_some() {
            push(crashes, Fault::RefillLost);
        }
        for hint in self.hints.iter() {
            push(lost_hints, Fault::HintLost(hint));
            push(repeated_hints, Fault::HintRepeated(hint));
        }
        for (number, action) in scenario.client_actions.iter().enumerate() {
            if !self.done[number] && self.postgres.runs[action.session()].exists {
                push(lost_hints, Fault::ClientAnswerLost(number));
            }
        }
        for (worker, process) in self.workers.iter().enumerate().filter(|(_, process)| process.alive) {
            let is_busy = process.loops.iter().any(|slot| *slot != Loop::Free);
            if is_busy {
                push(crashes, Fault::Crash(worker));
                push(if self.postgres.leases[worker] { pauses } else { 0 }, Fault::PauseInPostgres(worker));
                push(if self.queue.alive[worker] { pauses } else { 0 }, Fault::PauseInRedis(worker));
            }
            if !process.draining {
                push(drains, Fault::Drain(worker));
            }
            for (slot, state) in process.loops.iter().enumerate() {
                match state {
                    Loop::Claimed(_) => push(lost_commits, Fault::TakeAnswerLost(worker, slot)),
                    Loop::Leaving(..) => push(lost_calls, Fault::ReleaseLost(worker, slot)),
                    Loop::Running(LoopState { stage: Stage::Plan(_), .. }) => {
                        push(lost_commits, Fault::CommitAnswerLost(worker, slot));
                    }
                    Loop::Running(LoopState { stage: Stage::Doubt(_), .. }) => {
                        push(crashes, Fault::GiveUp(worker, slot))
                    }
                    Loop::Running(LoopState { stage: Stage::Read, .. }) => {
                        push(yields, Fault::Yield(worker, slot))
                    }
                    Loop::Running(LoopState { stage: Stage::Effect(_), .. }) => {
                        push(yields, Fault::BackOff(worker, slot))
                    }
                    Loop::Running(_) | Loop::Free | Loop::Kept(_) | Loop::Delivering(_) => {}
                }
            }
            let has_slot = process.loops.contains(&Loop::Free) && !process.draining;
            for session in (0..self.postgres.runs.len()).filter(|_| has_slot) {
                if self.queue.may_claim(session, scenario.cap) {
                    push(lost_calls, Fault::ClaimAnswerLost(worker, session));
                }
                if self.postgres.runs[session].exists && self.postgres.is_free(session) {
                    push(direct_claims, Fault::ClaimDirectly(worker, session));
                }
            }
        }
    }

    /// Performs an action from [`System::list_actions`].
    pub fn apply(&mut self, scenario: &Scenario, action: Action) {
        let rules = &scenario.rules;
        match action {
            Action::Client(number) => self.perform(scenario, number, AnswerFate::Arrives),
            Action::Hint(session) => {
                self.hints.remove(session);
                self.queue.enqueue(rules, session, false);
            }
            Action::Claim(worker, session) => {
                self.queue.claim(session, worker);
                self.occupy(worker, Loop::Claimed(session));
            }
            Action::Step(worker, slot) => self.step(scenario, worker, slot),
            Action::Stop(worker) => {
                self.workers[worker].alive = false;
                self.postgres.leases[worker] = false;
            }
            Action::Start => self.start(scenario),
            Action::Renew(worker) => {
                self.postgres.leases[worker] = true;
                self.queue.alive[worker] = true;
            }
            Action::LapseInPostgres(worker) => self.postgres.leases[worker] = false,
            Action::LapseInRedis(worker) => self.queue.alive[worker] = false,
            Action::Sweep(session) => {
                self.queue.enqueue(rules, session, false);
            }
            Action::Wake(session) => self.postgres.wake(session),
            Action::Reap => {
                self.queue.reap();
            }
            Action::ReadForRefill => self.read_for_refill(),
            Action::Refill => self.fill_queue(scenario),
            Action::GiveBack(worker, session) => {
                let epoch = self.postgres.runs[session].epoch;
                self.postgres.fail_attempt(session, epoch, scenario.attempts);
                self.queue.release(rules, session, worker, ReleaseTo::Front);
            }
            Action::Tidy(worker, session) => {
                self.queue.release(rules, session, worker, ReleaseTo::Rest);
            }
            Action::Fault(fault) => self.fail(scenario, fault),
        }
        self.check(scenario);
    }

    fn fail(&mut self, scenario: &Scenario, fault: Fault) {
        let rules = &scenario.rules;
        match fault {
            Fault::Crash(worker) => {
                self.faults.crashes -= 1;
                self.crash(worker);
            }
            Fault::PauseInPostgres(worker) => {
                self.faults.pauses -= 1;
                self.postgres.leases[worker] = false;
            }
            Fault::PauseInRedis(worker) => {
                self.faults.pauses -= 1;
                self.queue.alive[worker] = false;
            }
            Fault::Flush => {
                self.faults.flushes -= 1;
                self.queue.flush();
            }
            Fault::ClientAnswerLost(number) => {
                self.faults.lost_hints -= 1;
                self.perform(scenario, number, AnswerFate::IsLost);
            }
            Fault::CommitAnswerLost(worker, slot) => self.doubt(scenario, worker, slot),
            Fault::TakeAnswerLost(worker, slot) => {
                self.faults.lost_commits -= 1;
                if let Loop::Claimed(session) = self.workers[worker].loops[slot] {
                    // A session that was not available was not taken.
                    let take = self.take(scenario, SlotId { worker, slot }, session);
                    let then = if matches!(take, TakeResult::Yes { .. }) {
                        ReleaseTo::Front
                    } else {
                        ReleaseTo::Rest
                    };
                    self.workers[worker].loops[slot] = Loop::Leaving(session, then);
                }
            }
            Fault::GiveUp(worker, slot) => {
                self.faults.crashes -= 1;
                self.leave(worker, slot);
            }
            Fault::ClaimAnswerLost(worker, session) => {
                self.faults.lost_calls -= 1;
                self.queue.claim(session, worker);
            }
            Fault::ReleaseLost(worker, slot) => {
                self.faults.lost_calls -= 1;
                self.workers[worker].loops[slot] = Loop::Free;
            }
            Fault::HintLost(session) => {
                self.faults.lost_hints -= 1;
                self.hints.remove(session);
            }
            Fault::HintRepeated(session) => {
                self.faults.repeated_hints -= 1;
                self.queue.enqueue(rules, session, false);
            }
            Fault::RefillLost => {
                self.faults.crashes -= 1;
                self.refill = None;
            }
            Fault::Drain(worker) => {
                self.faults.drains -= 1;
                self.workers[worker].draining = true;
            }
            Fault::Yield(worker, slot) => self.plan(worker, slot, Kind::HandOver),
            Fault::BackOff(worker, slot) => self.plan(worker, slot, Kind::Park(Park::BackOff)),
            Fault::ClaimDirectly(worker, session) => {
                self.faults.direct_claims -= 1;
                self.occupy(worker, Loop::Claimed(session));
            }
        }
    }

    fn perform(&mut self, scenario: &Scenario, number: usize, answer: AnswerFate) {
        let key = u8::try_from(number).unwrap_or(u8::MAX) + 1;
        let session = scenario.client_actions[number].session();
        let before = self.postgres.runs[session].event_seq;
        let accepted = match scenario.client_actions[number] {
            ClientAction::Prompt(_) => self.postgres.accept_prompt(&scenario.rules, session, key),
            ClientAction::Abort(_) => self.postgres.accept_abort(&scenario.rules, session, key),
        };
        let events = self.postgres.runs[session].event_seq - before;
        self.observer.events(session, before + 1, events);
        match answer {
            AnswerFate::Arrives => {
                self.done[number] = true;
                if accepted == AcceptResult::Wakes {
                    self.hints.insert(session);
                }
            }
            // The gateway crashed before it sent the hint. The client repeats the action.
            AnswerFate::IsLost => {}
        }
    }

    /// Stores the next write of a loop and leaves the loop in doubt.
    fn doubt(&mut self, scenario: &Scenario, worker: Worker, slot: usize) {
        self.faults.lost_commits -= 1;
        let Loop::Running(at) = self.workers[worker].loops[slot] else { return };
        let Stage::Plan(plan) = at.stage else { return };
        self.commit(scenario, at.fence, &plan);
        self.workers[worker].loops[slot] = Loop::Running(LoopState { stage: Stage::Doubt(plan), ..at });
    }

    /// Makes a loop give up its slot.
    fn plan(&mut self, worker: Worker, slot: usize, kind: Kind) {
        self.faults.yields -= 1;
        let Loop::Running(at) = self.workers[worker].loops[slot] else { return };
        let turn = match at.stage {
            Stage::Effect(turn) => turn,
            Stage::Read | Stage::Plan(_) | Stage::Admitted(..) | Stage::Doubt(_) | Stage::AbortChild(_) => {
                self.postgres.runs[at.fence.session].turn
            }
        };
        let write = Write { events: 0, ack: at.acked, progress: false, turn };
        self.workers[worker].loops[slot] =
            Loop::Running(LoopState { stage: Stage::Plan(Plan { kind, write }), ..at });
    }

    fn leave(&mut self, worker: Worker, slot: usize) {
        if let Loop::Running(LoopState { fence: Fence { session, .. }, .. }) =
            self.workers[worker].loops[slot]
        {
            self.workers[worker].loops[slot] = Loop::Leaving(session, ReleaseTo::Rest);
        }
    }

    fn occupy(&mut self, worker: Worker, state: Loop) {
        if let Some(slot) = self.workers[worker].loops.iter_mut().find(|slot| **slot == Loop::Free) {
            *slot = state;
        }
    }
}

/// Whether the answer to an action reaches the client.
enum AnswerFate {
    Arrives,
    IsLost,
}
