//! How it was at the end: I7, I8, I10 and I13.

use super::{Invariant, Violation};
use crate::faults::history::History;

/// After the last fault, and the last prompt; microseconds.
const REST_US: i64 = 30_000_000;

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
    let sent = history.prompts.iter().filter_map(|prompt| prompt.accepted_us).max().unwrap_or(0);
    let took_us = end.settled_us.map(|at| at - end.mended_us.max(sent)).filter(|took_us| *took_us > REST_US);
    let late = took_us.map(|took_us| {
        let what = format!("came to rest {} ms after the last fault", took_us / 1_000);
        Violation::new(Invariant::I7, "all", what)
    });
    left.chain(late).collect()
}

/// A parent's last idle event comes after those of its children.
pub(super) fn parents_outlast_children(history: &History) -> Vec<Violation> {
    let idle = |session: &testkit::dump::Session| {
        let last = session.events.iter().rev().find(|event| event.kind == "session.idle");
        last.map(|event| event.at_ms)
    };
    let mut violations = vec![];
    for child in &history.sessions {
        let parent = child.parent_id.as_deref().and_then(|id| history.session(id));
        let Some(parent) = parent else { continue };
        let what = match (idle(child), idle(parent)) {
            (Some(child_ms), Some(parent_ms)) if child_ms <= parent_ms => continue,
            (None, _) => format!("it has no end, and its parent {} went on", parent.id),
            (Some(_), _) => format!("it ended after its parent {}", parent.id),
        };
        violations.push(Violation::new(Invariant::I8, &child.id, what));
    }
    violations
}

/// No session is quarantined, and every turn ended as done or aborted.
pub(super) fn nobody_is_blamed(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let mut blame = |what| violations.push(Violation::new(Invariant::I10, &session.id, what));
        if session.run.phase == 4 {
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

/// Connections, keys, processes and memory were given back.
pub(super) fn nothing_is_left(history: &History) -> Vec<Violation> {
    let left = history.end.leftovers.iter();
    left.map(|what| Violation::new(Invariant::I13, "all", what.clone())).collect()
}
