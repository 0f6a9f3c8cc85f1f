//! The ready queue in Redis: who holds which session, and what is ready. Any ready session may be the next one here; the
//! real scripts choose among them by fairness, and a test shows that their choice is always one that this allows.

use super::{
    postgres::{Session, Worker},
    rules::{Broken, Rules},
};

/// Who holds a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hold {
    /// This worker.
    pub owner: Worker,
    /// An input came meanwhile.
    pub dirty: bool,
}

/// Where a released session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// Nowhere, unless an input came meanwhile.
    Rest,
    /// Back into the queue.
    Front,
}

/// What became of a session that was to be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Enqueued {
    /// It waits for a claim.
    Queued,
    /// A living worker holds it.
    Held,
    /// The structure is not complete.
    Empty,
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Whether the structure is complete: false after a flush, until it was filled.
    pub complete: bool,
    /// By session.
    pub holds: Vec<Option<Hold>>,
    /// By session.
    pub ready: Vec<bool>,
    /// Whose sign of life is there, by worker.
    pub alive: Vec<bool>,
    /// Counters of [`Broken::EpochFromRedis`], by session.
    pub tokens: Vec<u64>,
}

impl Queue {
    /// An empty, complete queue.
    pub fn with_sessions(count: usize) -> Self {
        Self {
            complete: true,
            holds: vec![None; count],
            ready: vec![false; count],
            alive: vec![],
            tokens: vec![0; count],
        }
    }

    /// Loses everything.
    pub fn flush(&mut self) {
        self.complete = false;
        self.holds.fill(None);
        self.ready.fill(false);
        self.alive.fill(false);
        self.tokens.fill(0);
    }

    /// Queues a session, unless a living worker holds it: then its release queues it again.
    pub fn enqueue(&mut self, rules: &Rules, session: Session, rebuild: bool) -> Enqueued {
        if !self.complete && !rebuild {
            return Enqueued::Empty;
        }
        if let Some(hold) = &mut self.holds[session] {
            if self.alive[hold.owner] {
                hold.dirty |= !rules.lack(Broken::NoDirtyMark);
                return Enqueued::Held;
            }
            self.holds[session] = None;
        }
        self.ready[session] = true;
        Enqueued::Queued
    }

    /// How many sessions are held.
    pub fn held(&self) -> usize {
        self.holds.iter().flatten().count()
    }

    /// Whether a claim may give this session, with so many allowed to be held.
    pub fn may_claim(&self, session: Session, cap: usize) -> bool {
        self.complete && self.ready[session] && self.held() < cap
    }

    /// Gives a ready session to a worker.
    pub fn claim(&mut self, session: Session, owner: Worker) {
        self.ready[session] = false;
        self.holds[session] = Some(Hold { owner, dirty: false });
    }

    /// Ends a hold; only the holder's word counts. Gives whether an input came meanwhile.
    pub fn release(&mut self, rules: &Rules, session: Session, worker: Worker, then: Then) -> bool {
        if rules.lack(Broken::BareRelease) {
            self.holds[session] = None;
            self.ready[session] |= then == Then::Front;
            return false;
        }
        let Some(hold) = self.holds[session].filter(|hold| hold.owner == worker) else { return false };
        self.holds[session] = None;
        self.ready[session] |= hold.dirty || then == Then::Front;
        hold.dirty
    }

    /// Queues what dead workers hold, and gives how many sessions.
    pub fn reap(&mut self) -> usize {
        let mut count = 0;
        for (hold, ready) in self.holds.iter_mut().zip(&mut self.ready) {
            if hold.is_some_and(|hold| !self.alive[hold.owner]) {
                *hold = None;
                *ready = true;
                count += 1;
            }
        }
        count
    }

    /// Notes a hold, while the structure is filled again.
    pub fn adopt(&mut self, session: Session, owner: Worker) {
        if self.holds[session].is_none() {
            // Whoever queued it may know of an input that its holder has not seen.
            let dirty = std::mem::take(&mut self.ready[session]);
            self.holds[session] = Some(Hold { owner, dirty });
        }
    }

    /// Gives the next number of [`Broken::EpochFromRedis`].
    pub fn next_token(&mut self, session: Session) -> u64 {
        self.tokens[session] += 1;
        self.tokens[session]
    }
}
