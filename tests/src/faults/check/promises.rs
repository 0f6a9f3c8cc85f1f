//! Every check, by promise.

use super::{
    clients, effects, end, inputs, ownership,
    violation::{Invariant, Violation},
};
use crate::faults::history::History;
use std::collections::BTreeMap;

/// Searches a history for one kind of violation.
type Check = fn(&History) -> Vec<Violation>;

/// Every check. The tests break each promise once, so that each check has been seen to fail.
pub const CHECKS: [(Invariant, Check); 26] = [
    (Invariant::I1, inputs::stored_once),
    (Invariant::I1, inputs::all_taken),
    (Invariant::I1, inputs::every_prompt_answered),
    (Invariant::I1, inputs::turns_follow_their_script),
    (Invariant::I1, inputs::model_knows_every_prompt),
    (Invariant::I1, inputs::first_answers_count),
    (Invariant::I2, inputs::events_are_numbered),
    (Invariant::I3, effects::at_most_once),
    (Invariant::I3, effects::as_reported),
    (Invariant::I3, effects::in_order_of_epochs),
    (Invariant::I3, effects::only_after_permission),
    (Invariant::I4, ownership::one_takeover_per_epoch),
    (Invariant::I4, ownership::only_unreachable_workers_lose_sessions),
    (Invariant::I5, clients::subscribers_got_the_stored_events),
    (Invariant::I6, clients::fragments_agree),
    (Invariant::I7, end::work_settled),
    (Invariant::I8, end::parents_outlast_children),
    (Invariant::I9, effects::none_starts_after_an_abort),
    (Invariant::I9, inputs::aborted_steps_end),
    (Invariant::I10, end::poisons_are_quarantined),
    (Invariant::I10, end::no_other_session_fails),
    (Invariant::I11, ownership::light_tenants_are_served),
    (Invariant::I12, clients::tenants_see_their_own),
    (Invariant::I13, end::resources_are_released),
    (Invariant::I14, ownership::drains_are_quick),
    (Invariant::I14, ownership::drains_release_sessions),
];

pub fn all(history: &History) -> Vec<Violation> {
    let surprises = history.surprises.iter();
    let surprises =
        surprises.map(|it| Violation::new(Invariant::Surprise, &it.subject, it.description.clone()));
    CHECKS.iter().flat_map(|(_, check)| check(history)).chain(surprises).collect()
}

pub fn count(violations: &[Violation]) -> BTreeMap<Invariant, usize> {
    let mut counts = BTreeMap::new();
    for violation in violations {
        *counts.entry(violation.invariant).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
