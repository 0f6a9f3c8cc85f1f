//! Actual effects against the system's record of them: I3, and the part of I9 about effects after an abort.

use super::{
    Invariant, Violation,
    talks::{self, parts_of},
};
use crate::faults::history::{Effect, History};
use std::collections::BTreeMap;
use testkit::dump::{Part, Session};

/// How long a confirmed abort may take to reach everyone; microseconds.
const ABORT_US: i64 = 5_000_000;
/// How the model is told that a command did not begin.
const NOT_BEGUN: [&str; 3] =
    ["interrupted before it started", "No person answered in time", "The person refused this call"];

fn by_canary(history: &History) -> BTreeMap<&str, Vec<&Effect>> {
    let mut effects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &history.effects {
        effects.entry(&effect.canary).or_default().push(effect);
    }
    effects
}

/// No call had its effect twice, and none without a client that asked for it.
pub(super) fn once(history: &History) -> Vec<Violation> {
    let calls = talks::all(history).into_iter().flat_map(|talk| talk.calls);
    let known: BTreeMap<&str, &str> = calls.map(|call| (call.canary.as_str(), call.tool)).collect();
    let mut violations = vec![];
    for (canary, effects) in by_canary(history) {
        let session = &effects[0].session_id;
        if effects.len() > 1 {
            let what = format!("call {canary} had its effect {} times", effects.len());
            violations.push(Violation::new(Invariant::I3, session, what));
        }
        if !known.contains_key(canary) {
            let what = format!("there is an effect {canary} that nobody asked for");
            violations.push(Violation::new(Invariant::I3, session, what));
        }
    }
    violations
}

/// What is reported as done is done, what is reported as not begun is not, and nothing is done without a report.
pub(super) fn as_reported(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for talk in talks::all(history) {
        // A poison is stopped in the middle of a call.
        if history.is_poison(&talk.prompt.session_id) {
            continue;
        }
        for call in talk.calls {
            let done = effects.get(call.canary.as_str()).map_or(0, Vec::len);
            let parts =
                talk.session.map_or_else(Vec::new, |session| parts_of(session, &call.canary).collect());
            if let Some(what) = contradiction(&parts, done) {
                let what = format!("call {} ({}): {what}", call.canary, call.tool);
                let whose = talk.session.map_or(talk.canary, |session| &session.id);
                violations.push(Violation::new(Invariant::I3, whose, what));
            }
        }
    }
    violations
}

fn contradiction(parts: &[&Part], done: usize) -> Option<String> {
    let Some(part) = parts.first() else {
        return (done > 0).then(|| "it was done, and the conversation does not have it".to_owned());
    };
    let state = &part.data["state"];
    let error = state["error"].as_str().unwrap_or_default();
    match state["status"].as_str() {
        Some("completed") if done == 0 => Some("it is reported as done, and was not".to_owned()),
        Some("error") if done > 0 && NOT_BEGUN.iter().any(|words| error.contains(words)) => {
            Some("the model was told that it did not begin, and it was done".to_owned())
        }
        Some("completed" | "error") => None,
        other => Some(format!("it is left as {other:?}")),
    }
}

/// The effects of one session follow each other in the order of the epochs under which they were begun.
pub(super) fn in_order_of_epochs(history: &History) -> Vec<Violation> {
    let effects = by_canary(history);
    let mut by_session: BTreeMap<&str, Vec<(i64, i64, &str)>> = BTreeMap::new();
    for talk in talks::all(history) {
        let Some(session) = talk.session else { continue };
        let effects = talk.calls.iter().filter_map(|call| effects.get(call.canary.as_str())).flatten();
        for effect in effects {
            if let (Some(at_us), Some(epoch)) = (effect.at_us, epoch_of(session, &effect.canary)) {
                by_session.entry(&session.id).or_default().push((at_us, epoch, &effect.canary));
            }
        }
    }
    let mut violations = vec![];
    for (id, mut effects) in by_session {
        effects.sort_unstable();
        let mut newest = (0, "");
        for (_, epoch, canary) in effects {
            if epoch < newest.0 {
                let what =
                    format!("{canary} of epoch {epoch} began after {} of epoch {}", newest.1, newest.0);
                violations.push(Violation::new(Invariant::I3, id, what));
            }
            newest = newest.max((epoch, canary));
        }
    }
    violations
}

fn epoch_of(session: &Session, canary: &str) -> Option<i64> {
    let part = parts_of(session, canary).next()?;
    session.execs.iter().find(|exec| exec.exec_id == part.id).map(|exec| exec.epoch)
}

/// If a person must allow each command, no command started before the person's answer.
pub(super) fn allowed_first(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for talk in talks::all(history).iter().filter(|talk| talk.prompt.asks) {
        let Some(session) = talk.session else { continue };
        for call in talk.calls.iter().filter(|call| call.tool == "bash") {
            let Some(effect) = effects.get(call.canary.as_str()).and_then(|effects| effects.first()) else {
                continue;
            };
            let part = parts_of(session, &call.canary).next();
            // A request is named after the part of its call.
            let request = part.and_then(|part| Some(format!("per_{}", part.id.split_once('_')?.1)));
            let is_allowed = history.answers.iter().any(|answer| {
                Some(&answer.request_id) == request.as_ref()
                    && answer.said == "once"
                    && effect.at_us.is_some_and(|at_us| answer.sent_us <= at_us)
            });
            if !is_allowed {
                let what = format!("command {} began, and nobody had allowed it", call.canary);
                violations.push(Violation::new(Invariant::I3, &session.id, what));
            }
        }
    }
    violations
}

/// No command and no model call that was requested before an abort starts after it.
pub(super) fn nothing_begins_after_an_abort(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for abort in history.aborts.iter().filter(|abort| abort.was_active) {
        let deadline = abort.accepted_us + ABORT_US;
        let before = history.prompts.iter().filter(|prompt| {
            prompt.session_id == abort.session_id && prompt.accepted_us.is_some_and(|at| at < abort.sent_us)
        });
        for prompt in before {
            let mut blame = |what: String, at_us: i64| {
                let late_ms = (at_us - abort.accepted_us) / 1_000;
                let what = format!("{what} began {late_ms} ms after the abort was confirmed");
                violations.push(Violation::new(Invariant::I9, &abort.session_id, what));
            };
            let below = prompt.subtasks.iter().flat_map(|subtask| &subtask.calls);
            let begun = prompt
                .calls
                .iter()
                .chain(below)
                .filter_map(|call| effects.get(call.canary.as_str()))
                .flatten();
            for effect in begun {
                if let Some(at_us) = effect.at_us.filter(|at_us| *at_us > deadline) {
                    blame(format!("command {}", effect.canary), at_us);
                }
            }
            let named: Vec<_> = prompt.subtasks.iter().map(|subtask| &subtask.canary).collect();
            let asked = history
                .requests
                .iter()
                .filter(|request| request.prompt == prompt.canary || named.contains(&&request.prompt));
            for request in asked.filter(|request| request.at_us > deadline) {
                blame(format!("a model call for {}", request.prompt), request.at_us);
            }
        }
    }
    violations
}
