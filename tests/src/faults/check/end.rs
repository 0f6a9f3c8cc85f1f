//! The state at the end: I7, I8, I10 and I13.

use super::{
    tasks,
    violation::{Invariant, Violation},
};
use crate::faults::history::{CLOCKS_MS, History};
use domain::limits::ATTEMPTS_MAX;

/// Time limit from the last fault, prompt and answer of a person until no work is left; microseconds.
const SETTLE_US: i64 = 30_000_000;
/// The phase of a quarantined session.
const QUARANTINED: i16 = 4;

/// All work settled in time.
pub(super) fn work_settled(history: &History) -> Vec<Violation> {
    let end = &history.final_state;
    let left = end.unsettled.iter().map(|left| {
        let what = format!(
            "is still in phase {} with {} untaken inputs at epoch {}",
            left.phase, left.waiting, left.epoch
        );
        Violation::new(Invariant::I7, &left.session_id, what)
    });
    let prompt_times = history.prompts.iter().filter_map(|prompt| prompt.accepted_us);
    // A session that waits for a person is settled; each answer is new work.
    let answered = history.answers.iter().filter_map(|answer| answer.accepted_us);
    let since = prompt_times.chain(answered).fold(end.repaired_us, i64::max);
    let took_us = end.settled_us.map(|at| at - since).filter(|took_us| *took_us > SETTLE_US);
    let late = took_us.map(|took_us| {
        let what = format!("settled {} ms after the last fault, prompt and answer", took_us / 1_000);
        Violation::new(Invariant::I7, "all", what)
    });
    left.chain(late).collect()
}

/// Each call of a subtask created at most one child, and ended after its child.
pub(super) fn parents_outlast_children(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for (canary, children) in tasks::children(history) {
        if children.len() > 1 {
            let what = format!("{canary} has {} children", children.len());
            violations.push(Violation::new(Invariant::I8, &children[0].id, what));
        }
    }
    for child in &history.sessions {
        let parent = child.parent_id.as_deref().and_then(|id| history.session(id));
        let Some(parent) = parent else { continue };
        let idle = child.events.iter().rev().find(|event| event.kind == "session.idle");
        // The call of an aborted parent ends at once; its children are aborted at the same time.
        let over = parent.events.iter().find(|event| {
            let state = &event.properties["part"]["state"];
            state["status"] == "completed" && state["metadata"]["sessionId"] == *child.id
        });
        let what = match (idle, over) {
            (Some(idle), Some(over)) if idle.at_ms > over.at_ms + CLOCKS_MS => {
                format!("it ended {} ms after the call of its parent {}", idle.at_ms - over.at_ms, parent.id)
            }
            (Some(_), _) => continue,
            (None, _) => format!("it did not end, but its parent {} continued", parent.id),
        };
        violations.push(Violation::new(Invariant::I8, &child.id, what));
    }
    violations
}

/// Every poison is quarantined, after at most the allowed number of attempts without progress.
pub(super) fn poisons_are_quarantined(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for poison in history.poisons.iter().filter(|poison| !poison.killed.is_empty()) {
        let mut blame = |what| violations.push(Violation::new(Invariant::I10, &poison.session_id, what));
        let Some(session) = history.session(&poison.session_id) else { continue };
        if session.run.phase != QUARANTINED {
            blame(format!("it killed {} workers and is in phase {}", poison.killed.len(), session.run.phase));
        }
        let (mut attempts, mut most) = (0, 0);
        for event in &session.events {
            let has_result = event.properties["part"]["state"]["status"]
                .as_str()
                .is_some_and(|status| ["completed", "error"].contains(&status));
            if event.kind == "flotilla.loop.started" {
                attempts += 1;
            } else if has_result || event.properties["part"]["type"] == "step-finish" {
                attempts = 0;
            }
            most = most.max(attempts);
        }
        if most > i64::from(ATTEMPTS_MAX) {
            blame(format!("it was tried {most} times without progress"));
        }
    }
    violations
}

/// No other session is quarantined, and every turn ended as done or aborted.
pub(super) fn no_other_session_fails(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in history.sessions.iter().filter(|session| !history.is_poison(&session.id)) {
        let mut blame = |what| violations.push(Violation::new(Invariant::I10, &session.id, what));
        if session.run.phase == QUARANTINED {
            blame("it is quarantined".to_owned());
        }
        for event in session.events.iter().filter(|event| event.kind == "session.idle") {
            let outcome = event.properties["outcome"].as_str().unwrap_or_default();
            if !["done", "aborted"].contains(&outcome) {
                let errors = session.events.iter().rev();
                let error = errors
                    .filter(|error| error.seq < event.seq && error.kind == "session.error")
                    .map(|error| error.properties["error"].to_string());
                let error = error.take(1).collect::<String>();
                blame(format!("event {}: a turn ended as {outcome}: {error}", event.seq));
            }
        }
    }
    violations
}

/// Connections, keys, processes and memory are released.
pub(super) fn resources_are_released(history: &History) -> Vec<Violation> {
    let left = history.final_state.leftovers.iter();
    left.map(|what| Violation::new(Invariant::I13, "all", what.clone())).collect()
}
