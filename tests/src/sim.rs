//! The protocol between gateways, workers, Postgres, Redis and the sandbox as one small transition system, explored
//! exhaustively within small bounds and by seeded random walks within larger ones.
//!
//! Each server is a struct with explicit state, each transaction or script one function of it, and each process a state
//! machine that does one such step at a time; between two steps anything else may happen, and so may a fault. What is
//! right is said by an observer that sees what was accepted, and by the demand that from every state that can be reached
//! there is a way to rest without a further fault. In a system of finitely many states that is the same as: whatever
//! happened, a fair scheduler brings it to rest.
//!
//! Why our own explorer: the crate for this, `stateright`, checks safety well, but says of its `eventually` that it
//! overlooks paths that end in a cycle, and retries, sweeps and renewals make nothing but cycles. What is needed, "rest
//! can be reached from every state", is a backward search over the whole graph, which it does not keep. Both searches
//! together are a hundred lines and no dependency. States are told apart by 64 bits of a hash: among a million states two
//! are mixed up with a chance of one in 30 million.
//!
//! What is covered: acceptance with lost answers, claims, take-overs, the fence with write numbers, parking against new
//! inputs, hand-over, stray holds, sweeps, the emptied queue and its refilling from an old reading, timers, execs and their
//! fence, children and their answers, aborts that go down a tree, suspects and quarantine, slots and caps. A test runs
//! the same random operations against this Postgres and the real store, and another the same against this queue and the
//! real scripts, so that what is proved here is proved of them.
//!
//! What is not covered: the worker's and the gateway's own code (crash tests run that), fairness between tenants (the
//! queue's tests), the events and deltas on their way to clients (the feed's tests), time (a lease just ends at any moment,
//! and no worker stops itself: the worst case), several rebuilders at once, Postgres losing what it committed, and the
//! moment between a sandbox's check of the epoch and its effect, which is one step here.

pub mod action;
pub mod explore;
pub mod observer;
pub mod postgres;
pub mod queue;
pub mod rules;
pub mod sandbox;
pub mod scenario;
pub mod walk;
pub mod worker;

use observer::{Observer, Property};
use postgres::{Input, Phase, Postgres, Run, Session};
use queue::Queue;
use sandbox::{Inside, Sandbox};
use scenario::{Faults, Scenario, Wish};
use worker::{Loop, Process};

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct System {
    /// The database.
    pub postgres: Postgres,
    /// The queue.
    pub queue: Queue,
    /// The sandbox service.
    pub sandbox: Sandbox,
    /// The workers, living and dead.
    pub workers: Vec<Process>,
    /// The hints on their way to the queue. A set: they may overtake each other.
    hints: Hints,
    /// What was read to fill an emptied queue.
    refill: Option<Refill>,
    /// Whether a wish was answered.
    done: Vec<bool>,
    /// What may still go wrong.
    faults: Faults,
    /// What was seen of it all.
    observer: Observer,
}

/// A set of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Hints(u32);

impl Hints {
    fn insert(&mut self, session: Session) {
        self.0 |= 1 << session;
    }

    fn remove(&mut self, session: Session) {
        self.0 &= !(1 << session);
    }

    fn iter(self) -> impl Iterator<Item = Session> {
        (0..Session::try_from(u32::BITS).unwrap_or(0)).filter(move |session| self.0 >> session & 1 == 1)
    }
}

/// What a worker read in Postgres, to fill the queue with it a moment later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Refill {
    owned: Vec<(Session, postgres::Worker)>,
    free: Vec<Session>,
}

impl Wish {
    fn session(self) -> Session {
        match self {
            Self::Prompt(session) | Self::Abort(session) => session,
        }
    }
}

impl System {
    /// Everything before anything happened.
    pub fn initial(scenario: &Scenario) -> Self {
        let count = scenario.children.len();
        let mut system = Self {
            postgres: Postgres { runs: vec![Run::default(); count], leases: vec![] },
            queue: Queue::with_sessions(count),
            sandbox: Sandbox { sessions: vec![Inside::default(); count] },
            workers: vec![],
            hints: Hints::default(),
            refill: None,
            done: vec![false; scenario.wishes.len()],
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

    /// The first property that did not hold.
    pub fn violated(&self) -> Option<Property> {
        self.observer.violated()
    }

    /// Gives what is not at rest; `None` when everything is.
    pub fn find_unrest(&self, scenario: &Scenario) -> Option<String> {
        for (place, wish) in scenario.wishes.iter().enumerate() {
            if !self.done[place] && self.postgres.runs[wish.session()].exists {
                return Some(format!("{wish:?} has no answer"));
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
            return Some(format!("session {session} is {phase:?} with {missing} inputs not taken"));
        }
        let mut slots = self.workers.iter().flat_map(|worker| &worker.loops);
        slots.find(|slot| **slot != Loop::Free).map(|slot| format!("a slot is in use: {slot:?}"))
    }

    /// Looks for what no single step shows.
    fn check(&mut self, scenario: &Scenario) {
        for (session, children) in
            scenario.children.iter().enumerate().filter(|(_, children)| !children.is_empty())
        {
            let inputs = &self.postgres.runs[session].inputs;
            let answers = |child| inputs.iter().filter(|input| **input == Input::Answer(child)).count();
            let once = children.iter().all(|child| answers(*child) <= 1);
            self.observer.demand(once, Property::AnswerDeliveredOnce);
        }
    }

    /// Hints at the parent, which may have an answer now.
    fn hint_parent(&mut self, child: Session) {
        if let Some(parent) = self.postgres.runs[child].parent {
            self.hints.insert(parent);
        }
    }

    fn read_for_refill(&mut self) {
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

    fn fill_queue(&mut self, scenario: &Scenario) {
        let Some(Refill { owned, free }) = self.refill.take() else { return };
        for (session, owner) in owned {
            self.queue.adopt(session, owner);
        }
        for session in free {
            self.queue.enqueue(&scenario.rules, session, true);
        }
        self.queue.complete = true;
    }
}
