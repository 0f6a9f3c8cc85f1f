//! The guards that the hunt removes, one at a time.

/// A build without one guard.
///
/// These guards have no mutant, because no fault would reveal it:
///
/// - A connection that keeps the tenant of its last use. Each transaction sets its tenant in its first round trip, before its
///   first statement. A single statement runs only on a connection that has its tenant. Each statement also names the tenant,
///   so with another one it finds no row.
/// - A lock in Redis that is released without a check of its holder. If Redis then offers a session twice, Postgres refuses
///   the second take (see [`Mutant::AliveUnchecked`]). If Redis loses a session, the sweep finds it.
/// - A fencing number from Redis. The fencing number is a column of the row that it protects.
/// - A subscriber that reads the stored events before it subscribes. Events that are committed between the two appear as a
///   gap, or as a head that is ahead ([`Mutant::GapUnrepaired`], [`Mutant::HeadUnchecked`]).
/// - A cancelled call that drops its write to Postgres midway. The gateway does that whenever a client disconnects early. A
///   loop repeats a write in doubt under its old number ([`Mutant::WriteSeqUnchecked`]), and a dropped transaction is rolled
///   back before its connection is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A write does not compare the epoch.
    EpochUnchecked,
    /// The epoch is compared by a read before the write, not by the write itself.
    EpochBySelect,
    /// A write does not compare its number, so a repeated write in doubt is stored twice.
    WriteSeqUnchecked,
    /// A session goes idle although an input arrived.
    ParkBlind,
    /// Workers do not look for sessions whose message was lost, and holders do not learn of new inputs.
    NoSweeper,
    /// A worker takes a session from a living worker.
    AliveUnchecked,
    /// Progress does not reset the count of takeovers.
    AttemptsKept,
    /// A repeated prompt counts as a new prompt.
    DedupeOff,
    /// The sandbox accepts every epoch.
    SandboxEpochUnchecked,
    /// The sandbox forgets the newest epoch when it restarts.
    SandboxEpochForgotten,
    /// Each loop gives an exec a new id.
    ExecIdPerEpoch,
    /// A loop repeats a change that may already have been made.
    RepeatUnchecked,
    /// A living worker keeps a session that it owns but does not run.
    OrphansKept,
    /// The first error of Redis ends the heartbeat.
    HeartbeatDies,
    /// A subscriber receives later events before earlier events that were lost.
    GapUnrepaired,
    /// A gateway does not check whether the last event was lost.
    HeadUnchecked,
    /// The gateway forwards deltas of a replaced loop, even if their part was removed. Either check alone suffices: of the
    /// epoch first, and of the part soon after.
    DeltaEpochUnchecked,
    /// An abort is announced but not stored.
    AbortAnnouncedOnly,
    /// A drained worker exits at once.
    DrainDrops,
    /// A write takes all inputs, including those that the loop has not read.
    AckAhead,
    /// A session keeps its slot while it waits for its children.
    WaitKeepsSlot,
}

impl Mutant {
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
