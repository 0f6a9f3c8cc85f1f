//! Watches what the store and the sandbox accepted, without asking them whether it was right.

use super::postgres::{Fence, Session};

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// Without further faults every accepted input is taken and answered, and every session comes to rest.
    ComesToRest,
    /// A prompt is answered once.
    AnsweredOnce,
    /// A take-over gives an epoch that was never given before.
    EpochGivenOnce,
    /// The store accepts no write of an older epoch after a take-over.
    NoStaleWrite,
    /// The store accepts each write once.
    WrittenOnce,
    /// Events are numbered without a gap and without a repetition.
    EventsGapFree,
    /// The sandbox accepts no effect of an older epoch after one of a newer epoch.
    NoStaleEffect,
    /// An exec is started once.
    StartedOnce,
    /// A child's answer reaches its parent once.
    AnswerDeliveredOnce,
    /// A session that ends its aborted turn leaves no child behind that knows nothing of it.
    AbortReachesChildren,
    /// Only the session that ends its workers is given up.
    OnlyPoisonQuarantined,
}

/// What was seen of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Seen {
    taken_epoch: u64,
    written: (u64, u64),
    acted_epoch: u64,
    execs: Vec<u64>,
    event_seq: u64,
    answered_to: u64,
}

/// The observer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Observer {
    sessions: Vec<Seen>,
    violated: Option<Property>,
}

impl Observer {
    /// One that has seen nothing of so many sessions.
    pub fn with_sessions(count: usize) -> Self {
        Self { sessions: vec![Seen::default(); count], violated: None }
    }

    /// The first property that did not hold.
    pub fn violated(&self) -> Option<Property> {
        self.violated
    }

    /// Says that a property does not hold unless it does.
    pub fn demand(&mut self, holds: bool, property: Property) {
        if !holds && self.violated.is_none() {
            self.violated = Some(property);
        }
    }

    /// A session was taken over.
    pub fn taken(&mut self, session: Session, epoch: u64) {
        let seen = &mut self.sessions[session];
        let is_new = epoch > seen.taken_epoch;
        seen.taken_epoch = seen.taken_epoch.max(epoch);
        self.demand(is_new, Property::EpochGivenOnce);
    }

    /// A session was taken from whoever had it, for nobody.
    pub fn withdrawn(&mut self, session: Session, epoch: u64, is_poison: bool) {
        self.taken(session, epoch);
        self.demand(is_poison, Property::OnlyPoisonQuarantined);
    }

    /// A write was stored.
    pub fn written(&mut self, fence: Fence) {
        let seen = &mut self.sessions[fence.session];
        let number = (fence.epoch, fence.write_seq);
        let (is_current, is_new) = (fence.epoch >= seen.taken_epoch, number > seen.written);
        seen.written = seen.written.max(number);
        self.demand(is_current, Property::NoStaleWrite);
        self.demand(is_new, Property::WrittenOnce);
    }

    /// Events were stored, beginning with this number.
    pub fn numbered(&mut self, session: Session, first: u64, count: u64) {
        let seen = &mut self.sessions[session];
        let follows = first == seen.event_seq + 1;
        seen.event_seq = first + count - 1;
        self.demand(follows || count == 0, Property::EventsGapFree);
    }

    /// The prompts up to this input were answered.
    pub fn answered(&mut self, session: Session, upto: u64) {
        let seen = &mut self.sessions[session];
        let is_first = upto > seen.answered_to;
        seen.answered_to = seen.answered_to.max(upto);
        self.demand(is_first, Property::AnsweredOnce);
    }

    /// The prompts up to this input were aborted.
    pub fn closed(&mut self, session: Session, upto: u64) {
        let seen = &mut self.sessions[session];
        seen.answered_to = seen.answered_to.max(upto);
    }

    /// The sandbox accepted a start of an exec, which began now or before.
    pub fn acted(&mut self, session: Session, epoch: u64, exec: u64, now: bool) {
        let seen = &mut self.sessions[session];
        let is_current = epoch >= seen.acted_epoch;
        let is_first = !now || !seen.execs.contains(&exec);
        seen.acted_epoch = seen.acted_epoch.max(epoch);
        if now && is_first {
            seen.execs.push(exec);
        }
        self.demand(is_current, Property::NoStaleEffect);
        self.demand(is_first, Property::StartedOnce);
    }
}
