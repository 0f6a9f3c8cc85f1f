//! The promises, and what a broken one looks like.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Invariant {
    /// Every confirmed prompt is stored once and taken once, and its turn does what its script says.
    I1,
    /// The events of a session are 1, 2, 3, … without gaps, its epochs never decrease, and no event occurs twice.
    I2,
    /// No effect occurs twice, after a report that it did not start, without permission, or from an older loop after
    /// one of a newer loop.
    I3,
    /// One takeover per epoch, and only from a loop that has ended or whose worker is unreachable.
    I4,
    /// Every subscriber received exactly the stored events, to the end.
    I5,
    /// Live fragments agree with the final text.
    I6,
    /// Half a minute after the last fault no work is left.
    I7,
    /// A subtask has one child, and its call ends when the child ends.
    I8,
    /// Five seconds after a confirmed abort no part of the aborted turn starts.
    I9,
    /// A session that kills its workers is quarantined in time. No other session is quarantined, and none fails.
    I10,
    /// Light tenants do not wait longer than the heavy tenant.
    I11,
    /// No client sees another tenant's data.
    I12,
    I13,
    /// A worker that is asked to stop does so in time, with little delay for its sessions.
    I14,
    /// Clients and processes get only correct answers: no refusal without a reason, no process that exits by itself.
    Surprise,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub invariant: Invariant,
    /// The session or process that it concerns, or `all`.
    pub subject: String,
    pub description: String,
}

impl Violation {
    pub(super) fn new(invariant: Invariant, subject: &str, description: String) -> Self {
        Self { invariant, subject: subject.to_owned(), description }
    }
}
