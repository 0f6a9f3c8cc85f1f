//! The rules of the protocol, and how each of them can be broken on purpose: a check that finds nothing in a broken
//! protocol says nothing about the sound one.

/// One rule that is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// The store accepts writes of any epoch.
    NoFence,
    /// The store reads the epoch first and writes in a second step.
    FenceByReading,
    /// The store does not know a repeated write again.
    NoWriteNumbers,
    /// The epoch comes from a counter in Redis.
    EpochFromRedis,
    /// Parking does not compare the newest input.
    BlindPark,
    /// An accepted input does not make its session runnable; only the hint tells.
    NoMarker,
    /// An input that comes while the session is held leaves no mark in the queue.
    NoDirtyMark,
    /// A release deletes whatever lease there is, and its mark.
    BareRelease,
    /// What a worker holds in the queue but does not run is left there.
    QueueStraysStay,
    /// What a worker owns in Postgres but does not run is left there.
    StraysStay,
    /// The sandbox accepts calls of any epoch.
    SandboxUnfenced,
    /// The sandbox starts an exec each time it is asked to.
    ExecsRepeat,
    /// A waiting session keeps its slot and its place under the cap.
    WaitingKeepsSlot,
    /// A child's answer is delivered in a step of its own after its last write.
    AnswerAfterPark,
    /// A repeated answer of a child is another input.
    AnswersRepeat,
    /// A write takes inputs of which it notes nothing.
    AckUnnoted,
    /// An aborted session leaves its children alone.
    AbortStaysUp,
    /// Progress does not forgive earlier attempts.
    AttemptsStay,
    /// A worker runs any number of sessions that failed before.
    SuspectsTogether,
}

/// The rules that a run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The one that is not kept.
    pub broken: Option<Broken>,
    /// Whether workers look in Postgres for what no hint announced.
    pub sweeps: bool,
    /// Whether workers queue again what dead workers hold in the queue.
    pub reaps: bool,
}

impl Rules {
    /// All of them.
    pub const SOUND: Self = Self { broken: None, sweeps: true, reaps: true };

    /// Whether this rule is broken.
    pub fn lack(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }
}
