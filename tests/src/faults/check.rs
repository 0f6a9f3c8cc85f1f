//! The checker: one function for each promise, applied to the observers' record. It knows nothing about how the system
//! keeps its promises.

mod clients;
mod effects;
mod end;
mod inputs;
mod ownership;
mod talks;

use super::history::History;
use serde::Serialize;
use std::collections::BTreeMap;

/// A promise.
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
    /// Every subscriber got exactly what is stored, to the end.
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
    /// Light tenants do not wait longer than the heavy one makes itself wait.
    I11,
    /// No client sees another tenant's data.
    I12,
    /// All resources are released.
    I13,
    /// A worker that is asked to stop does so in time, with little delay for its sessions.
    I14,
    /// Clients and processes get only correct answers: no refusal without a reason, no process that exits by itself.
    Surprise,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// Whose: a session, a process, or all of it.
    pub whose: String,
    /// How it was broken.
    pub what: String,
}

impl Violation {
    fn new(invariant: Invariant, whose: &str, what: String) -> Self {
        Self { invariant, whose: whose.to_owned(), what }
    }
}

/// Something that looks at a history for one kind of breach.
type Check = fn(&History) -> Vec<Violation>;

/// Every check. `tests` breaks each promise once by hand, so each check has been seen to fail.
pub const CHECKS: [(Invariant, Check); 26] = [
    (Invariant::I1, inputs::stored_once),
    (Invariant::I1, inputs::taken),
    (Invariant::I1, inputs::answered),
    (Invariant::I1, inputs::done_as_said),
    (Invariant::I1, inputs::told_to_the_model),
    (Invariant::I1, inputs::answers_count),
    (Invariant::I2, inputs::events_are_numbered),
    (Invariant::I3, effects::once),
    (Invariant::I3, effects::as_reported),
    (Invariant::I3, effects::in_order_of_epochs),
    (Invariant::I3, effects::allowed_first),
    (Invariant::I4, ownership::one_take_over_for_each_epoch),
    (Invariant::I4, ownership::taken_from_the_silent_only),
    (Invariant::I5, clients::saw_what_is_stored),
    (Invariant::I6, clients::fragments_agree),
    (Invariant::I7, end::came_to_rest),
    (Invariant::I8, end::parents_outlast_children),
    (Invariant::I9, effects::nothing_begins_after_an_abort),
    (Invariant::I9, inputs::aborted_steps_are_over),
    (Invariant::I10, end::poisons_are_convicted),
    (Invariant::I10, end::nobody_is_blamed),
    (Invariant::I11, ownership::light_tenants_are_served),
    (Invariant::I12, clients::tenants_see_their_own),
    (Invariant::I13, end::nothing_is_left),
    (Invariant::I14, ownership::drains_are_quick),
    (Invariant::I14, ownership::drains_take_leave),
];

/// Checks everything.
pub fn all(history: &History) -> Vec<Violation> {
    let surprises = history.surprises.iter();
    let surprised = surprises.map(|it| Violation::new(Invariant::Surprise, &it.whose, it.what.clone()));
    CHECKS.iter().flat_map(|(_, check)| check(history)).chain(surprised).collect()
}

/// Violations by promise, how many of each.
pub fn count(violations: &[Violation]) -> BTreeMap<Invariant, usize> {
    let mut counts = BTreeMap::new();
    for violation in violations {
        *counts.entry(violation.invariant).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
