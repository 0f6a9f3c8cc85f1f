//! The state at the end: I7, I8, I10 and I13.

use super::{Invariant, Violation, talks};
use crate::faults::history::History;
use domain::limits::ATTEMPTS_MAX;

/// After the last fault, the last prompt and the last answer of a person; microseconds.
const REST_US: i64 = 30_000_000;
/// The phase of a session that is out of service.
const QUARANTINED: i16 = 4;

/// Everything was at rest in time.
pub(super) fn came_to_rest(history: &History) -> Vec<Violation> {
    let end = &history.end;
    let left = end.unsettled.iter().map(|left| {
        let what = format!(
            "is in phase {} with {} inputs waiting, at epoch {}, when waiting ended",
            left.phase, left.waiting, left.epoch
        );
        Violation::new(Invariant::I7, &left.session_id, what)
    });
    let sent = history.prompts.iter().filter_map(|prompt| prompt.accepted_us);
    // A session that waits for a person is settled; each answer is new work.
    let answered = history.answers.iter().filter_map(|answer| answer.accepted_us);
    let since = sent.chain(answered).fold(end.mended_us, i64::max);
    let took_us = end.settled_us.map(|at| at - since).filter(|took_us| *took_us > REST_US);
    let late = took_us.map(|took_us| {
        let what = format!("came to rest {} ms after the last fault, prompt and answer", took_us / 1_000);
        Violation::new(Invariant::I7, "all", what)
    });
    left.chain(late).collect()
}

/// Each call of a subtask made one child at most, and was over only when its child was.
pub(super) fn parents_outlast_children(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for (canary, children) in talks::children(history) {
        if children.len() > 1 {
            let what = format!("{} children were made for {canary}", children.len());
            violations.push(Violation::new(Invariant::I8, &children[0].id, what));
        }
    }
    for child in &history.sessions {
        let parent = child.parent_id.as_deref().and_then(|id| history.session(id));
        let Some(parent) = parent else { continue };
        let idle = child.events.iter().rev().find(|event| event.kind == "session.idle");
        // That of an aborted parent is over at once; its children are told in the same moment.
        let over = parent.events.iter().find(|event| {
            let state = &event.properties["part"]["state"];
            state["status"] == "completed" && state["metadata"]["sessionId"] == *child.id
        });
        let what = match (idle, over) {
            (Some(idle), Some(over)) if idle.at_ms > over.at_ms => {
                format!("it ended {} ms after the call of its parent {}", idle.at_ms - over.at_ms, parent.id)
            }
            (Some(_), _) => continue,
            (None, _) => format!("it has no end, and its parent {} went on", parent.id),
        };
        violations.push(Violation::new(Invariant::I8, &child.id, what));
    }
    violations
}

/// Every poison is quarantined, after at most the allowed number of attempts without progress.
pub(super) fn poisons_are_convicted(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for poison in history.poisons.iter().filter(|poison| !poison.ended.is_empty()) {
        let mut blame = |what| violations.push(Violation::new(Invariant::I10, &poison.session_id, what));
        let Some(session) = history.session(&poison.session_id) else { continue };
        if session.run.phase != QUARANTINED {
            blame(format!("it ended {} workers and is in phase {}", poison.ended.len(), session.run.phase));
        }
        let (mut vain, mut most) = (0, 0);
        for event in &session.events {
            let has_result = event.properties["part"]["state"]["status"]
                .as_str()
                .is_some_and(|status| ["completed", "error"].contains(&status));
            if event.kind == "flotilla.loop.started" {
                vain += 1;
            } else if has_result || event.properties["part"]["type"] == "step-finish" {
                vain = 0;
            }
            most = most.max(vain);
        }
        if most > i64::from(ATTEMPTS_MAX) {
            blame(format!("it was tried {most} times without getting any further"));
        }
    }
    violations
}

/// No other session is quarantined, and every turn ended as done or aborted.
pub(super) fn nobody_is_blamed(history: &History) -> Vec<Violation> {
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

/// Connections, keys, processes and memory were released.
pub(super) fn nothing_is_left(history: &History) -> Vec<Violation> {
    let left = history.end.leftovers.iter();
    left.map(|what| Violation::new(Invariant::I13, "all", what.clone())).collect()
}
