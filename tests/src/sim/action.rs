//! What can happen next, and what it does. Actions without a fault are what a healthy system does by itself; each fault
//! is taken from a budget.

use super::{
    System,
    postgres::{Accepted, Fence, Park, Phase, Session, Take, Worker, Write},
    queue::Then,
    rules::Broken,
    scenario::{Faults, Scenario, Wish},
    worker::{At, Kind, Loop, Plan, Process, Stage},
};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's wish reaches Postgres, and its answer the client.
    Wish(usize),
    /// A hint reaches the queue.
    Hint(Session),
    /// A worker claims a session.
    Claim(Worker, Session),
    /// A loop goes on.
    Step(Worker, usize),
    /// A worker that was asked to stop and has nothing left ends.
    Stop(Worker),
    /// A worker is started.
    Start,
    /// A worker renews its leases.
    Renew(Worker),
    /// The lease of a dead worker ends in Postgres.
    LapseInPostgres(Worker),
    /// The lease of a dead worker ends in Redis.
    LapseInRedis(Worker),
    /// The sweeper queues what nobody announced.
    Sweep(Session),
    /// A timer ends.
    Wake(Session),
    /// What dead workers hold in the queue is queued again.
    Reap,
    /// Postgres is read, to fill an emptied queue.
    ReadForRefill,
    /// The queue is filled with what was read.
    Refill,
    /// A worker gives back what it owns in Postgres and does not run.
    GiveBack(Worker, Session),
    /// A worker releases what it holds in the queue and does not run.
    Tidy(Worker, Session),
    /// Something goes wrong.
    Fault(Fault),
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A worker ends without a word.
    Crash(Worker),
    /// A worker looks dead to Postgres, and goes on.
    PauseInPostgres(Worker),
    /// A worker looks dead to Redis, and goes on.
    PauseInRedis(Worker),
    /// Redis loses everything.
    Flush,
    /// A prompt is stored and its answer lost; the client repeats it.
    WishAnswerLost(usize),
    /// A loop's write is stored and its answer lost.
    CommitAnswerLost(Worker, usize),
    /// A take-over is stored and its answer lost.
    TakeAnswerLost(Worker, usize),
    /// A loop gives up a write whose outcome is in doubt.
    GiveUp(Worker, usize),
    /// A claim is done and its answer lost.
    ClaimAnswerLost(Worker, Session),
    /// A release does not reach the queue.
    ReleaseLost(Worker, usize),
    /// A hint is lost.
    HintLost(Session),
    /// A hint is delivered, and will be again.
    HintRepeated(Session),
    /// Whoever fills the queue ends on the way.
    RefillLost,
    /// A worker is asked to stop.
    Drain(Worker),
    /// A loop gives its slot to others at a step boundary.
    Yield(Worker, usize),
    /// A loop waits for its provider, without a slot.
    BackOff(Worker, usize),
    /// A session is claimed from Postgres, because Redis is away.
    ClaimDirectly(Worker, Session),
}

impl Action {
    /// Whether it is a fault.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

impl System {
    /// Lists what can happen next into `actions`.
    pub fn list_actions(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        actions.clear();
        let rules = &scenario.rules;
        let wishes = scenario.wishes.iter().enumerate();
        let open =
            wishes.filter(|(place, wish)| !self.done[*place] && self.postgres.runs[wish.session()].exists);
        actions.extend(open.map(|(place, _)| Action::Wish(place)));
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

    /// Whether a session needs a worker and the queue does not know.
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
            if holds && !uses && !scenario.rules.lack(Broken::QueueStraysStay) {
                actions.push(Action::Tidy(worker, session));
            }
            if self.is_stray(worker, session) && !scenario.rules.lack(Broken::StraysStay) {
                actions.push(Action::GiveBack(worker, session));
            }
        }
    }

    /// Whether a worker owns a session in Postgres that it does not run.
    fn is_stray(&self, worker: Worker, session: Session) -> bool {
        let run = &self.postgres.runs[session];
        let runs = |slot: &Loop| matches!(slot, Loop::At(at) if at.fence.session == session);
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
        for (place, wish) in scenario.wishes.iter().enumerate() {
            if !self.done[place] && self.postgres.runs[wish.session()].exists {
                push(lost_hints, Fault::WishAnswerLost(place));
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
                    Loop::At(At { stage: Stage::Plan(_), .. }) => {
                        push(lost_commits, Fault::CommitAnswerLost(worker, slot));
                    }
                    Loop::At(At { stage: Stage::Doubt(_), .. }) => push(crashes, Fault::GiveUp(worker, slot)),
                    Loop::At(At { stage: Stage::Look, .. }) => push(yields, Fault::Yield(worker, slot)),
                    Loop::At(At { stage: Stage::Effect(_), .. }) => {
                        push(yields, Fault::BackOff(worker, slot))
                    }
                    Loop::At(_) | Loop::Free | Loop::Kept(_) | Loop::Delivering(_) => {}
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

    /// Does an action that [`System::list_actions`] gave.
    pub fn apply(&mut self, scenario: &Scenario, action: Action) {
        let rules = &scenario.rules;
        match action {
            Action::Wish(place) => self.wish(scenario, place, Answer::Comes),
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
                self.queue.release(rules, session, worker, Then::Front);
            }
            Action::Tidy(worker, session) => {
                self.queue.release(rules, session, worker, Then::Rest);
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
            Fault::WishAnswerLost(place) => {
                self.faults.lost_hints -= 1;
                self.wish(scenario, place, Answer::IsLost);
            }
            Fault::CommitAnswerLost(worker, slot) => self.doubt(scenario, worker, slot),
            Fault::TakeAnswerLost(worker, slot) => {
                self.faults.lost_commits -= 1;
                if let Loop::Claimed(session) = self.workers[worker].loops[slot] {
                    // What is not to be had was not taken either.
                    let take = self.take(scenario, (worker, slot), session);
                    let then = if matches!(take, Take::Yes { .. }) { Then::Front } else { Then::Rest };
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

    fn wish(&mut self, scenario: &Scenario, place: usize, answer: Answer) {
        let key = u8::try_from(place).unwrap_or(u8::MAX) + 1;
        let session = scenario.wishes[place].session();
        let before = self.postgres.runs[session].event_seq;
        let accepted = match scenario.wishes[place] {
            Wish::Prompt(_) => self.postgres.accept_prompt(&scenario.rules, session, key),
            Wish::Abort(_) => self.postgres.accept_abort(&scenario.rules, session, key),
        };
        let events = self.postgres.runs[session].event_seq - before;
        self.observer.numbered(session, before + 1, events);
        match answer {
            Answer::Comes => {
                self.done[place] = true;
                if accepted == Accepted::Wakes {
                    self.hints.insert(session);
                }
            }
            // The gateway died with the hint; the client asks again.
            Answer::IsLost => {}
        }
    }

    /// Stores what a loop is about to store, and leaves it in doubt.
    fn doubt(&mut self, scenario: &Scenario, worker: Worker, slot: usize) {
        self.faults.lost_commits -= 1;
        let Loop::At(at) = self.workers[worker].loops[slot] else { return };
        let Stage::Plan(plan) = at.stage else { return };
        self.commit(scenario, at.fence, &plan);
        self.workers[worker].loops[slot] = Loop::At(At { stage: Stage::Doubt(plan), ..at });
    }

    /// Has a loop give its slot up.
    fn plan(&mut self, worker: Worker, slot: usize, kind: Kind) {
        self.faults.yields -= 1;
        let Loop::At(at) = self.workers[worker].loops[slot] else { return };
        let turn = match at.stage {
            Stage::Effect(turn) => turn,
            Stage::Look | Stage::Plan(_) | Stage::Admitted(..) | Stage::Doubt(_) | Stage::AbortChild(_) => {
                self.postgres.runs[at.fence.session].turn
            }
        };
        let write = Write { events: 0, ack: at.acked, progress: false, turn };
        self.workers[worker].loops[slot] = Loop::At(At { stage: Stage::Plan(Plan { kind, write }), ..at });
    }

    fn leave(&mut self, worker: Worker, slot: usize) {
        if let Loop::At(At { fence: Fence { session, .. }, .. }) = self.workers[worker].loops[slot] {
            self.workers[worker].loops[slot] = Loop::Leaving(session, Then::Rest);
        }
    }

    fn occupy(&mut self, worker: Worker, state: Loop) {
        if let Some(slot) = self.workers[worker].loops.iter_mut().find(|slot| **slot == Loop::Free) {
            *slot = state;
        }
    }

    pub(super) fn start(&mut self, scenario: &Scenario) {
        let loops = vec![Loop::Free; scenario.slots];
        self.workers.push(Process { alive: true, draining: false, loops });
        self.postgres.leases.push(true);
        self.queue.alive.push(true);
    }

    pub(super) fn crash(&mut self, worker: Worker) {
        let process = &mut self.workers[worker];
        process.alive = false;
        process.loops.fill(Loop::Free);
    }
}

/// Whether a client hears what became of its wish.
enum Answer {
    Comes,
    IsLost,
}
