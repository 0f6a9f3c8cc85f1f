//! The state of the whole system.

use super::{
    observer::{Observer, Property},
    postgres::{self, Input, Phase, Postgres, Run, Session, Worker},
    queue::Queue,
    sandbox::{Sandbox, SandboxSession},
    scenario::{Faults, Scenario},
    worker::{Loop, Process},
};

/// The state of the system at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct System {
    pub postgres: Postgres,
    pub queue: Queue,
    pub sandbox: Sandbox,
    /// The workers, living and dead.
    pub workers: Vec<Process>,
    /// The hints that have not reached the queue. A set, because they may overtake each other.
    pub(super) hints: Hints,
    /// The rows that were read to refill an emptied queue.
    pub(super) refill: Option<Refill>,
    /// Whether each action of the clients was answered.
    pub(super) done: Vec<bool>,
    /// The faults that may still happen.
    pub(super) faults: Faults,
    /// The observer of all steps.
    pub(super) observer: Observer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Hints(u32);

impl Hints {
    pub(super) fn insert(&mut self, session: Session) {
        self.0 |= 1 << session;
    }

    pub(super) fn remove(&mut self, session: Session) {
        self.0 &= !(1 << session);
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Session> {
        (0..Session::try_from(u32::BITS).unwrap_or(0)).filter(move |session| self.0 >> session & 1 == 1)
    }
}

/// The rows that a worker read in Postgres, to refill the queue a moment later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Refill {
    owned: Vec<(Session, postgres::Worker)>,
    free: Vec<Session>,
}

impl System {
    pub fn initial(scenario: &Scenario) -> Self {
        let count = scenario.children.len();
        let mut system = Self {
            postgres: Postgres { runs: vec![Run::default(); count], leases: vec![] },
            queue: Queue::with_sessions(count),
            sandbox: Sandbox { sessions: vec![SandboxSession::default(); count] },
            workers: vec![],
            hints: Hints::default(),
            refill: None,
            done: vec![false; scenario.client_actions.len()],
            faults: scenario.faults,
            observer: Observer::with_sessions(count),
        };
        let is_child = |session: Session| scenario.children.iter().flatten().any(|child| *child == session);
        for (session, run) in system.postgres.runs.iter_mut().enumerate() {
            run.exists = !is_child(session);
        }
        (0..scenario.workers).for_each(|_| system.start(scenario));
        system
    }

    /// Returns the first property that was violated.
    pub fn violated(&self) -> Option<Property> {
        self.observer.violated()
    }

    /// Describes a session or slot that is not settled; `None` if the system is settled.
    pub fn find_unsettled(&self, scenario: &Scenario) -> Option<String> {
        for (number, action) in scenario.client_actions.iter().enumerate() {
            if !self.done[number] && self.postgres.runs[action.session()].exists {
                return Some(format!("{action:?} has no answer"));
            }
        }
        for (session, run) in self.postgres.runs.iter().enumerate().filter(|(_, run)| run.exists) {
            let is_idle = run.phase == Phase::Idle && run.input_ack == run.input_seq;
            if run.phase == Phase::Quarantined
                || is_idle && run.newest_prompt(run.input_seq) <= run.turn.answered_to
            {
                continue;
            }
            let (phase, missing) = (run.phase, run.input_seq - run.input_ack);
            return Some(format!("session {session} is {phase:?} with {missing} untaken inputs"));
        }
        let mut slots = self.workers.iter().flat_map(|worker| &worker.loops);
        slots.find(|slot| **slot != Loop::Free).map(|slot| format!("a slot is in use: {slot:?}"))
    }

    /// Checks the properties that no single step shows.
    pub(super) fn check(&mut self, scenario: &Scenario) {
        for (session, children) in
            scenario.children.iter().enumerate().filter(|(_, children)| !children.is_empty())
        {
            let inputs = &self.postgres.runs[session].inputs;
            let answers = |child| inputs.iter().filter(|input| **input == Input::Answer(child)).count();
            let once = children.iter().all(|child| answers(*child) <= 1);
            self.observer.demand(once, Property::AnswerDeliveredOnce);
        }
    }

    /// Sends a hint for the parent, which may have an answer now.
    pub(super) fn hint_parent(&mut self, child: Session) {
        if let Some(parent) = self.postgres.runs[child].parent {
            self.hints.insert(parent);
        }
    }

    pub(super) fn read_for_refill(&mut self) {
        let sessions = 0..self.postgres.runs.len();
        let owner = |session: Session| {
            let run = &self.postgres.runs[session];
            run.owner.filter(|owner| run.phase == Phase::Running && self.postgres.leases[*owner])
        };
        let owned = sessions.clone().filter_map(|session| Some((session, owner(session)?))).collect();
        let free =
            sessions.filter(|session| self.postgres.runs[*session].exists && self.postgres.is_free(*session));
        self.refill = Some(Refill { owned, free: free.collect() });
    }

    pub(super) fn fill_queue(&mut self, scenario: &Scenario) {
        let Some(Refill { owned, free }) = self.refill.take() else { return };
        for (session, owner) in owned {
            self.queue.adopt(session, owner);
        }
        for session in free {
            self.queue.enqueue(&scenario.rules, session, true);
        }
        self.queue.complete = true;
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
