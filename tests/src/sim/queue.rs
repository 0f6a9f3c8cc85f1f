//! The ready queue in Redis: the holders of sessions, and the ready sessions. Here a claim may give any ready session. The real
//! scripts choose by fairness, and a test shows that this queue always allows their choice.

use super::{
    postgres::{Session, Worker},
    rules::{BrokenRule, Rules},
};

/// The hold of a worker on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hold {
    pub owner: Worker,
    /// Whether an input arrived meanwhile.
    pub dirty: bool,
}

/// Where a released session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseTo {
    /// Out of the queue, unless an input arrived meanwhile.
    Rest,
    Front,
}

/// The result of queueing a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EnqueueResult {
    /// The session waits for a claim.
    Queued,
    /// A living worker holds the session.
    Held,
    /// The queue is not complete.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Whether the queue is complete: false between a flush and the refill.
    pub complete: bool,
    /// The hold on each session.
    pub holds: Vec<Option<Hold>>,
    /// Whether each session is ready.
    pub ready: Vec<bool>,
    /// Whether each worker is alive.
    pub alive: Vec<bool>,
    /// Counters of [`BrokenRule::EpochFromRedis`], by session.
    pub tokens: Vec<u64>,
}

impl Queue {
    /// Creates an empty, complete queue.
    pub fn with_sessions(count: usize) -> Self {
        Self {
            complete: true,
            holds: vec![None; count],
            ready: vec![false; count],
            alive: vec![],
            tokens: vec![0; count],
        }
    }

    pub fn flush(&mut self) {
        self.complete = false;
        self.holds.fill(None);
        self.ready.fill(false);
        self.alive.fill(false);
        self.tokens.fill(0);
    }

    /// Queues a session. If a living worker holds it, its release queues it again.
    pub fn enqueue(&mut self, rules: &Rules, session: Session, rebuild: bool) -> EnqueueResult {
        if !self.complete && !rebuild {
            return EnqueueResult::Empty;
        }
        if let Some(hold) = &mut self.holds[session] {
            if self.alive[hold.owner] {
                hold.dirty |= !rules.is_broken(BrokenRule::NoDirtyMark);
                return EnqueueResult::Held;
            }
            self.holds[session] = None;
        }
        self.ready[session] = true;
        EnqueueResult::Queued
    }

    /// Returns the number of held sessions.
    pub fn held(&self) -> usize {
        self.holds.iter().flatten().count()
    }

    /// Returns whether a claim may give this session, if at most `cap` sessions may be held.
    pub fn may_claim(&self, session: Session, cap: usize) -> bool {
        self.complete && self.ready[session] && self.held() < cap
    }

    /// Gives a ready session to a worker.
    pub fn claim(&mut self, session: Session, owner: Worker) {
        self.ready[session] = false;
        self.holds[session] = Some(Hold { owner, dirty: false });
    }

    /// Releases a session, if the worker holds it. Returns whether an input arrived meanwhile.
    pub fn release(&mut self, rules: &Rules, session: Session, worker: Worker, then: ReleaseTo) -> bool {
        if rules.is_broken(BrokenRule::BareRelease) {
            self.holds[session] = None;
            self.ready[session] |= then == ReleaseTo::Front;
            return false;
        }
        let Some(hold) = self.holds[session].filter(|hold| hold.owner == worker) else { return false };
        self.holds[session] = None;
        self.ready[session] |= hold.dirty || then == ReleaseTo::Front;
        hold.dirty
    }

    /// Queues the sessions of dead workers, and returns their number.
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

    /// Records a hold during the refill.
    pub fn adopt(&mut self, session: Session, owner: Worker) {
        if self.holds[session].is_none() {
            // The session may be queued because of an input that its holder has not read.
            let dirty = std::mem::take(&mut self.ready[session]);
            self.holds[session] = Some(Hold { owner, dirty });
        }
    }

    /// Returns the next number of [`BrokenRule::EpochFromRedis`].
    pub fn next_token(&mut self, session: Session) -> u64 {
        self.tokens[session] += 1;
        self.tokens[session]
    }
}
