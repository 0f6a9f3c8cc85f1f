//! What was done in the world, against what the system says of it: I3, and of I9 what is done after an abort.

use super::{Invariant, Violation, inputs::parts_of};
use crate::faults::history::{Effect, History};
use std::collections::BTreeMap;
use testkit::dump::{Part, Session};

/// How long a confirmed abort may take to reach everyone; microseconds.
const ABORT_US: i64 = 5_000_000;
/// How the model is told that a command had not begun.
const NOT_BEGUN: &str = "interrupted before it started";

fn by_canary(history: &History) -> BTreeMap<&str, Vec<&Effect>> {
    let mut effects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &history.effects {
        effects.entry(&effect.canary).or_default().push(effect);
    }
    effects
}

/// No call had its effect twice, and none without a client that asked for it.
pub(super) fn once(history: &History) -> Vec<Violation> {
    let calls = history.prompts.iter().flat_map(|prompt| &prompt.calls);
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
    for prompt in &history.prompts {
        let Some(session) = history.session(&prompt.session_id) else { continue };
        for call in &prompt.calls {
            let done = effects.get(call.canary.as_str()).map_or(0, Vec::len);
            let parts: Vec<_> = parts_of(session, &call.canary).collect();
            if let Some(what) = contradiction(&parts, done) {
                let what = format!("call {} ({}): {what}", call.canary, call.tool);
                violations.push(Violation::new(Invariant::I3, &session.id, what));
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
        Some("error") if error.contains(NOT_BEGUN) && done > 0 => {
            Some("the model was told that it had not begun, and it was done".to_owned())
        }
        Some("completed" | "error") => None,
        other => Some(format!("it is left as {other:?}")),
    }
}

/// Effects follow each other in the order of the epochs under which they were begun.
pub(super) fn in_order_of_epochs(history: &History) -> Vec<Violation> {
    let mut by_session: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in history.effects.iter().filter(|effect| effect.at_us.is_some()) {
        by_session.entry(&effect.session_id).or_default().push(effect);
    }
    let mut violations = vec![];
    for (id, mut effects) in by_session {
        let Some(session) = history.session(id) else { continue };
        effects.sort_by_key(|effect| effect.at_us);
        let mut newest = (0, "");
        for effect in effects {
            let Some(epoch) = epoch_of(session, &effect.canary) else { continue };
            if epoch < newest.0 {
                let what = format!(
                    "{} of epoch {epoch} began after {} of epoch {}",
                    effect.canary, newest.1, newest.0
                );
                violations.push(Violation::new(Invariant::I3, id, what));
            }
            newest = newest.max((epoch, &effect.canary));
        }
    }
    violations
}

fn epoch_of(session: &Session, canary: &str) -> Option<i64> {
    let part = parts_of(session, canary).next()?;
    session.execs.iter().find(|exec| exec.exec_id == part.id).map(|exec| exec.epoch)
}

/// Nothing that was asked for before an abort begins after it: no command, and no call of the model.
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
            let begun = prompt.calls.iter().filter_map(|call| effects.get(call.canary.as_str())).flatten();
            for effect in begun {
                if let Some(at_us) = effect.at_us.filter(|at_us| *at_us > deadline) {
                    blame(format!("command {}", effect.canary), at_us);
                }
            }
            let asked = history
                .requests
                .iter()
                .filter(|request| request.session_id == abort.session_id && request.prompt == prompt.canary);
            for request in asked.filter(|request| request.at_us > deadline) {
                blame(format!("a model call for {}", prompt.canary), request.at_us);
            }
        }
    }
    violations
}
