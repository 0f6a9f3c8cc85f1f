//! Compares the actual effects with the system's record of them: I3, and the part of I9 about effects after an abort.

use super::{
    tasks::{self, parts_of},
    violation::{Invariant, Violation},
};
use crate::faults::history::{Effect, History};
use std::collections::BTreeMap;
use testkit::dump::{Part, Session};

/// Time limit for a confirmed abort to take effect; microseconds.
const ABORT_US: i64 = 5_000_000;
/// The text that tells the model that an abort ended a command. The command may have had its effect before.
const ABORTED: &str = "User aborted the command";
/// The texts that tell the model that a command did not start.
const NOT_STARTED: [&str; 3] =
    ["interrupted before it started", "No person answered in time", "The user rejected permission"];

fn by_canary(history: &History) -> BTreeMap<&str, Vec<&Effect>> {
    let mut effects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &history.effects {
        effects.entry(&effect.canary).or_default().push(effect);
    }
    effects
}

/// No call had its effect twice, and every effect belongs to a prompt of a client.
pub(super) fn at_most_once(history: &History) -> Vec<Violation> {
    let calls = tasks::all(history).into_iter().flat_map(|task| task.calls);
    let known: BTreeMap<&str, &str> = calls.map(|call| (call.canary.as_str(), call.tool)).collect();
    let mut violations = vec![];
    for (canary, effects) in by_canary(history) {
        let session = &effects[0].session_id;
        if effects.len() > 1 {
            let what = format!("call {canary} had its effect {} times", effects.len());
            violations.push(Violation::new(Invariant::I3, session, what));
        }
        if !known.contains_key(canary) {
            let what = format!("effect {canary} belongs to no prompt");
            violations.push(Violation::new(Invariant::I3, session, what));
        }
    }
    violations
}

/// A call that is reported as completed had its effect, a call that is reported as not started had none, and every effect
/// is reported.
pub(super) fn as_reported(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for task in tasks::all(history) {
        // The harness kills the worker of a poison in the middle of a call.
        if history.is_poison(&task.prompt.session_id) {
            continue;
        }
        for call in task.calls {
            let effect_count = effects.get(call.canary.as_str()).map_or(0, Vec::len);
            let parts =
                task.session.map_or_else(Vec::new, |session| parts_of(session, &call.canary).collect());
            if let Some(what) = contradiction(&parts, effect_count) {
                let what = format!("call {} ({}): {what}", call.canary, call.tool);
                let subject = task.session.map_or(task.canary, |session| &session.id);
                violations.push(Violation::new(Invariant::I3, subject, what));
            }
        }
    }
    violations
}

fn contradiction(parts: &[&Part], effect_count: usize) -> Option<String> {
    let Some(part) = parts.first() else {
        return (effect_count > 0)
            .then(|| "it had its effect, but the conversation does not contain it".to_owned());
    };
    let state = &part.data["state"];
    let error = state["error"].as_str().unwrap_or_default();
    match state["status"].as_str() {
        Some("completed") if state["output"].as_str().is_some_and(|output| output.contains(ABORTED)) => None,
        Some("completed") if effect_count == 0 => {
            Some("it is reported as completed, but had no effect".to_owned())
        }
        Some("error") if effect_count > 0 && NOT_STARTED.iter().any(|words| error.contains(words)) => {
            Some("the model was told that it did not start, but it had its effect".to_owned())
        }
        Some("completed" | "error") => None,
        other => Some(format!("its final status is {other:?}")),
    }
}

/// The effects of one session occur in the order of their epochs.
pub(super) fn in_order_of_epochs(history: &History) -> Vec<Violation> {
    let effects = by_canary(history);
    let mut by_session: BTreeMap<&str, Vec<(i64, i64, &str)>> = BTreeMap::new();
    for task in tasks::all(history) {
        let Some(session) = task.session else { continue };
        let effects = task.calls.iter().filter_map(|call| effects.get(call.canary.as_str())).flatten();
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
                    format!("{canary} of epoch {epoch} started after {} of epoch {}", newest.1, newest.0);
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
pub(super) fn only_after_permission(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for task in tasks::all(history).iter().filter(|task| task.prompt.asks) {
        let Some(session) = task.session else { continue };
        for call in task.calls.iter().filter(|call| call.tool == "bash") {
            let Some(effect) = effects.get(call.canary.as_str()).and_then(|effects| effects.first()) else {
                continue;
            };
            let part = parts_of(session, &call.canary).next();
            // The id of a request is derived from the part of its call.
            let request = part.and_then(|part| Some(format!("per_{}", part.id.split_once('_')?.1)));
            let is_allowed = history.answers.iter().any(|answer| {
                Some(&answer.request_id) == request.as_ref()
                    && answer.reply == "once"
                    && effect.at_us.is_some_and(|at_us| answer.sent_us <= at_us)
            });
            if !is_allowed {
                let what = format!("command {} started without permission", call.canary);
                violations.push(Violation::new(Invariant::I3, &session.id, what));
            }
        }
    }
    violations
}

/// No command and no model call that was requested before an abort starts after it.
pub(super) fn none_starts_after_an_abort(history: &History) -> Vec<Violation> {
    let (effects, mut violations) = (by_canary(history), vec![]);
    for abort in history.aborts.iter().filter(|abort| abort.was_active) {
        let deadline = abort.accepted_us + ABORT_US;
        let before = history.prompts.iter().filter(|prompt| {
            prompt.session_id == abort.session_id && prompt.accepted_us.is_some_and(|at| at < abort.sent_us)
        });
        for prompt in before {
            let mut blame = |what: String, at_us: i64| {
                let late_ms = (at_us - abort.accepted_us) / 1_000;
                let what = format!("{what} started {late_ms} ms after the abort was confirmed");
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
            let requests = history
                .requests
                .iter()
                .filter(|request| request.prompt == prompt.canary || named.contains(&&request.prompt));
            for request in requests.filter(|request| request.at_us > deadline) {
                blame(format!("a model call for {}", request.prompt), request.at_us);
            }
        }
    }
    violations
}
