//! Checks what the store and the sandbox accepted, independently of their own checks.

use super::postgres::{Fence, Session};

/// A property of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// Without further faults, every accepted input is taken and answered, and every session settles.
    Settles,
    /// A prompt is answered once.
    AnsweredOnce,
    /// Each takeover gives a new epoch.
    EpochGivenOnce,
    /// After a takeover, the store accepts no write of an older epoch.
    NoStaleWrite,
    /// The store accepts each write once.
    WrittenOnce,
    /// Events are numbered without a gap and without a repetition.
    EventsGapFree,
    /// The sandbox accepts no effect of an older epoch after one of a newer epoch.
    NoStaleEffect,
    /// An exec is started once.
    StartedOnce,
    /// The answer of a child reaches its parent once.
    AnswerDeliveredOnce,
    /// When a session ends its aborted turn, all of its active children are aborted.
    AbortReachesChildren,
    OnlyPoisonQuarantined,
}

/// The observations of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Observation {
    taken_epoch: u64,
    written: (u64, u64),
    acted_epoch: u64,
    execs: Vec<u64>,
    event_seq: u64,
    answered_to: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Observer {
    sessions: Vec<Observation>,
    violated: Option<Property>,
}

impl Observer {
    /// Creates an observer without observations.
    pub fn with_sessions(count: usize) -> Self {
        Self { sessions: vec![Observation::default(); count], violated: None }
    }

    /// Returns the first property that was violated.
    pub fn violated(&self) -> Option<Property> {
        self.violated
    }

    /// Records a violation of a property unless it holds.
    pub fn demand(&mut self, holds: bool, property: Property) {
        if !holds && self.violated.is_none() {
            self.violated = Some(property);
        }
    }

    pub fn takeover(&mut self, session: Session, epoch: u64) {
        let session = &mut self.sessions[session];
        let is_new = epoch > session.taken_epoch;
        session.taken_epoch = session.taken_epoch.max(epoch);
        self.demand(is_new, Property::EpochGivenOnce);
    }

    pub fn quarantine(&mut self, session: Session, epoch: u64, is_poison: bool) {
        self.takeover(session, epoch);
        self.demand(is_poison, Property::OnlyPoisonQuarantined);
    }

    pub fn write(&mut self, fence: Fence) {
        let session = &mut self.sessions[fence.session];
        let number = (fence.epoch, fence.write_seq);
        let (is_current, is_new) = (fence.epoch >= session.taken_epoch, number > session.written);
        session.written = session.written.max(number);
        self.demand(is_current, Property::NoStaleWrite);
        self.demand(is_new, Property::WrittenOnce);
    }

    /// Records stored events, with the number of the first.
    pub fn events(&mut self, session: Session, first: u64, count: u64) {
        let session = &mut self.sessions[session];
        let follows = first == session.event_seq + 1;
        session.event_seq = first + count - 1;
        self.demand(follows || count == 0, Property::EventsGapFree);
    }

    /// Records that the prompts up to this input were answered.
    pub fn answer(&mut self, session: Session, upto: u64) {
        let session = &mut self.sessions[session];
        let is_first = upto > session.answered_to;
        session.answered_to = session.answered_to.max(upto);
        self.demand(is_first, Property::AnsweredOnce);
    }

    /// Records that the prompts up to this input were aborted.
    pub fn abort(&mut self, session: Session, upto: u64) {
        let session = &mut self.sessions[session];
        session.answered_to = session.answered_to.max(upto);
    }

    /// Records that the sandbox accepted the start of an exec, which started now or earlier.
    pub fn exec(&mut self, session: Session, epoch: u64, exec: u64, now: bool) {
        let session = &mut self.sessions[session];
        let is_current = epoch >= session.acted_epoch;
        let is_first = !now || !session.execs.contains(&exec);
        session.acted_epoch = session.acted_epoch.max(epoch);
        if now && is_first {
            session.execs.push(exec);
        }
        self.demand(is_current, Property::NoStaleEffect);
        self.demand(is_first, Property::StartedOnce);
    }
}
