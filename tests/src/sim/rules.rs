//! The rules of the protocol, each of which can be broken on purpose: a check that finds no violation in a broken protocol
//! proves nothing about the sound one.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// The store accepts writes of any epoch.
    NoFence,
    /// The store reads the epoch first and writes in a second step.
    FenceByReading,
    /// The store does not recognise a repeated write.
    NoWriteNumbers,
    /// The epoch comes from a counter in Redis.
    EpochFromRedis,
    /// Parking does not compare the newest input.
    BlindPark,
    /// An accepted input does not make its session runnable; only the hint announces it.
    NoMarker,
    /// An input that arrives while the session is held leaves no mark in the queue.
    NoDirtyMark,
    /// A release deletes the hold of any worker, and its mark.
    BareRelease,
    /// A worker keeps sessions that it holds in the queue but does not run.
    QueueStraysStay,
    /// A worker keeps sessions that it owns in Postgres but does not run.
    StraysStay,
    /// The sandbox accepts calls of any epoch.
    SandboxUnfenced,
    /// The sandbox starts an exec at each request.
    ExecsRepeat,
    /// A waiting session keeps its slot and its place under the cap.
    WaitingKeepsSlot,
    /// The answer of a child is delivered in a separate step after its last write.
    AnswerAfterPark,
    /// A repeated answer of a child counts as a new input.
    AnswersRepeat,
    /// A write takes inputs without recording them.
    AckUnnoted,
    /// An aborted session does not abort its children.
    AbortStaysUp,
    /// Progress does not reset the attempts.
    AttemptsStay,
    /// A worker runs several suspects at once.
    SuspectsTogether,
}

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The broken rule, if any.
    pub broken: Option<BrokenRule>,
    /// Whether workers look in Postgres for sessions whose hint was lost.
    pub sweeps: bool,
    /// Whether workers requeue the sessions of dead workers.
    pub reaps: bool,
}

impl Rules {
    pub const SOUND: Self = Self { broken: None, sweeps: true, reaps: true };

    /// Returns whether this rule is broken.
    pub fn is_broken(&self, broken: BrokenRule) -> bool {
        self.broken == Some(broken)
    }
}
