//! The guards that the hunt takes out, one at a time.

/// A guard that is taken out.
///
/// Missing here, because nothing would miss it:
///
/// - A tenant that is set for the connection in place of the transaction. Each transaction sets its own in its first round
///   trip, before any statement of it, and each statement names the tenant besides: what the last one left is never read.
/// - A lock in Redis that is released without a look at who holds it. What Redis then gives away twice is refused by the take
///   in Postgres (see [`Mutant::AliveUnchecked`]); what it loses is found by the sweep.
/// - A fencing number from Redis. There is none: the number is a column of the row that it guards.
/// - A subscriber that reads what is stored before it listens. What is committed in between is a gap or a head that is ahead
///   ([`Mutant::GapUnrepaired`], [`Mutant::HeadUnchecked`]).
/// - A cancelled call that drops its write to Postgres midway. The gateway does that whenever a client leaves early; a loop
///   repeats a write in doubt under its old number ([`Mutant::WriteSeqUnchecked`]), and a transaction that is dropped is
///   rolled back before its connection is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A write does not compare the epoch.
    EpochUnchecked,
    /// The epoch is compared by a read before the write, not by the write itself.
    EpochBySelect,
    /// A write does not compare its own number, so that one in doubt is made twice.
    WriteSeqUnchecked,
    /// A session goes idle although an input came.
    ParkBlind,
    /// Nobody looks for what no message announced, and no holder is told that there is more.
    NoSweeper,
    /// A session is taken from a worker that is alive.
    AliveUnchecked,
    /// Take-overs are counted for ever, with or without progress.
    AttemptsKept,
    /// A repeated prompt is another prompt.
    DedupeOff,
    /// The sandbox serves every epoch.
    SandboxEpochUnchecked,
    /// The sandbox does not remember across its restarts which epoch was the newest.
    SandboxEpochForgotten,
    /// An exec is named anew by each loop.
    ExecIdPerEpoch,
    /// A change that may have been made is made again.
    RepeatUnchecked,
    /// A session that a living worker owns and does not run stays with it.
    OrphansKept,
    /// The first error of Redis ends the heartbeat.
    HeartbeatDies,
    /// A subscriber gets later events before earlier ones that were lost on the way.
    GapUnrepaired,
    /// Nobody looks whether the last event was lost on the way.
    HeadUnchecked,
    /// What a replaced loop still streams is forwarded, also when its part was taken back. Each of the two alone is enough:
    /// the epoch says so first, and the part soon after.
    DeltaEpochUnchecked,
    /// An abort is only announced, not stored.
    AbortAnnouncedOnly,
    /// A worker that is asked to end just ends.
    DrainDrops,
    /// A write takes every input that it finds, also those that the loop has not looked at.
    AckAhead,
    /// A session keeps its slot while its children work.
    WaitKeepsSlot,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::EpochUnchecked,
        Self::EpochBySelect,
        Self::WriteSeqUnchecked,
        Self::ParkBlind,
        Self::NoSweeper,
        Self::AliveUnchecked,
        Self::AttemptsKept,
        Self::DedupeOff,
        Self::SandboxEpochUnchecked,
        Self::SandboxEpochForgotten,
        Self::ExecIdPerEpoch,
        Self::RepeatUnchecked,
        Self::OrphansKept,
        Self::HeartbeatDies,
        Self::GapUnrepaired,
        Self::HeadUnchecked,
        Self::DeltaEpochUnchecked,
        Self::AbortAnnouncedOnly,
        Self::DrainDrops,
        Self::AckAhead,
        Self::WaitKeepsSlot,
    ];

    /// Its name on a command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EpochUnchecked => "epoch-unchecked",
            Self::EpochBySelect => "epoch-by-select",
            Self::WriteSeqUnchecked => "write-seq-unchecked",
            Self::ParkBlind => "park-blind",
            Self::NoSweeper => "no-sweeper",
            Self::AliveUnchecked => "alive-unchecked",
            Self::AttemptsKept => "attempts-kept",
            Self::DedupeOff => "dedupe-off",
            Self::SandboxEpochUnchecked => "sandbox-epoch-unchecked",
            Self::SandboxEpochForgotten => "sandbox-epoch-forgotten",
            Self::ExecIdPerEpoch => "exec-id-per-epoch",
            Self::RepeatUnchecked => "repeat-unchecked",
            Self::OrphansKept => "orphans-kept",
            Self::HeartbeatDies => "heartbeat-dies",
            Self::GapUnrepaired => "gap-unrepaired",
            Self::HeadUnchecked => "head-unchecked",
            Self::DeltaEpochUnchecked => "delta-epoch-unchecked",
            Self::AbortAnnouncedOnly => "abort-announced-only",
            Self::DrainDrops => "drain-drops",
            Self::AckAhead => "ack-ahead",
            Self::WaitKeepsSlot => "wait-keeps-slot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Mutant::ALL.map(Mutant::as_str).into();
        assert_eq!(names.len(), Mutant::ALL.len());
    }
}
