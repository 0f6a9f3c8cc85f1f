//! Prompts, and the log of their turns: I1, I2, and the part of I9 about the log.

use super::{
    tasks::{self, parts_of},
    violation::{Invariant, Violation},
};
use crate::faults::history::{CLOCKS_MS, History};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use testkit::dump::Session;

/// Every confirmed prompt is in the mailbox once, with the confirmed message. An unconfirmed prompt is there at most once.
/// The mailbox contains no other prompts.
pub(super) fn stored_once(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for prompt in &history.prompts {
        known.entry(&prompt.session_id).or_default().insert(format!("key:{}", prompt.key));
        let mut blame = |what| violations.push(Violation::new(Invariant::I1, &prompt.session_id, what));
        let Some(session) = history.session(&prompt.session_id) else {
            blame("the session is not stored".to_owned());
            continue;
        };
        let dedupe = format!("key:{}", prompt.key);
        let stored: Vec<_> = session.inputs.iter().filter(|input| input.dedupe == dedupe).collect();
        let is_confirmed = prompt.accepted_us.is_some();
        if stored.len() > 1 || (is_confirmed && stored.is_empty()) {
            blame(format!("prompt {} is in the mailbox {} times", prompt.key, stored.len()));
        }
        let message = stored.first().and_then(|input| input.message_id.as_deref());
        if let Some(other) =
            prompt.answers.iter().find(|answer| message.is_some_and(|message| message != *answer))
        {
            blame(format!("prompt {} was confirmed as {other}, but is stored as {message:?}", prompt.key));
        }
        let rows =
            session.messages.iter().filter(|row| Some(row.id.as_str()) == message && row.role == "user");
        let rows = rows.count();
        if message.is_some() && rows != 1 {
            blame(format!("prompt {} has {rows} messages", prompt.key));
        }
    }
    // The prompt of a child comes from its parent.
    for session in history.sessions.iter().filter(|session| session.parent_id.is_none()) {
        let known = known.get(session.id.as_str());
        let unknown = session.inputs.iter().filter(|input| {
            input.kind == "prompt" && !known.is_some_and(|known| known.contains(&input.dedupe))
        });
        for input in unknown {
            let what = format!("no client sent input {} ({})", input.seq, input.dedupe);
            violations.push(Violation::new(Invariant::I1, &session.id, what));
        }
    }
    violations
}

/// A loop took every input.
pub(super) fn all_taken(history: &History) -> Vec<Violation> {
    let left = history
        .sessions
        .iter()
        .filter(|session| session.run.input_ack != session.run.input_seq && !history.is_poison(&session.id));
    let what = |session: &Session| {
        format!("{} inputs are stored, but only {} are taken", session.run.input_seq, session.run.input_ack)
    };
    left.map(|session| Violation::new(Invariant::I1, &session.id, what(session))).collect()
}

/// A turn ended after the newest prompt of every session.
pub(super) fn every_prompt_answered(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in history.sessions.iter().filter(|session| !history.is_poison(&session.id)) {
        let newest = |matches: &dyn Fn(&testkit::dump::Event) -> bool| {
            session.events.iter().rev().find(|event| matches(event)).map_or(0, |event| event.seq)
        };
        let prompt =
            newest(&|event| event.kind == "message.updated" && event.properties["info"]["role"] == "user");
        if newest(&|event| event.kind == "session.idle") < prompt {
            let what = format!("no turn answered the prompt of event {prompt}");
            violations.push(Violation::new(Invariant::I1, &session.id, what));
        }
    }
    violations
}

/// An uninterrupted turn made each call of its script once.
pub(super) fn turns_follow_their_script(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for task in tasks::all(history) {
        let Some(session) = task.session.filter(|session| has_separate_turn(session, task.message)) else {
            continue;
        };
        let below = task.prompt.subtasks.iter().filter(|subtask| subtask.within == task.canary);
        let calls = task.calls.iter().map(|call| &call.canary).chain(below.map(|subtask| &subtask.call));
        for call in calls {
            let parts = parts_of(session, call).count();
            if parts != 1 {
                let what =
                    format!("call {call} of an uninterrupted turn is in the conversation {parts} times");
                violations.push(Violation::new(Invariant::I1, &session.id, what));
            }
        }
    }
    violations
}

/// Each answer that was confirmed as the first is in the log as the person gave it, and no other answer is.
pub(super) fn first_answers_count(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for answer in history.answers.iter().filter(|answer| answer.accepted_us.is_some()) {
        let Some(session) = history.session(&answer.session_id) else { continue };
        let replies = session.events.iter().filter(|event| {
            event.properties["requestID"] == *answer.request_id
                && ["permission.replied", "question.replied", "question.rejected"]
                    .contains(&event.kind.as_str())
        });
        let replies: Vec<_> = replies
            .map(|event| match event.properties["reply"].as_str() {
                Some(reply) => reply,
                None => event.properties["answers"][0][0].as_str().unwrap_or_default(),
            })
            .collect();
        if replies.is_empty() || replies.iter().any(|reply| *reply != answer.reply) {
            let what = format!(
                "{} was confirmed for {}, but the log has {replies:?}",
                answer.reply, answer.request_id
            );
            violations.push(Violation::new(Invariant::I1, &session.id, what));
        }
    }
    violations
}

/// A turn ended as done only after the model received every earlier prompt.
pub(super) fn model_knows_every_prompt(history: &History) -> Vec<Violation> {
    let mut first_request: BTreeMap<&str, i64> = BTreeMap::new();
    for request in &history.requests {
        for canary in &request.canaries {
            let first = first_request.entry(canary).or_insert(request.at_us);
            *first = request.at_us.min(*first);
        }
    }
    let mut violations = vec![];
    for task in tasks::all(history) {
        let (Some(session), Some(message)) = (task.session, task.message) else { continue };
        let prompt_at = session
            .events
            .iter()
            .position(|event| event.kind == "message.updated" && event.properties["info"]["id"] == *message);
        let end =
            prompt_at.and_then(|at| session.events[at..].iter().find(|event| event.kind == "session.idle"));
        let Some(end) = end.filter(|end| end.properties["outcome"] == "done") else { continue };
        if first_request.get(task.canary).is_none_or(|at_us| *at_us / 1_000 > end.at_ms + CLOCKS_MS) {
            let what =
                format!("the turn ended at event {} before the model received {}", end.seq, task.canary);
            violations.push(Violation::new(Invariant::I1, &session.id, what));
        }
    }
    violations
}

/// Returns whether the session ended a turn as done after this prompt and before the next one.
fn has_separate_turn(session: &Session, message: Option<&str>) -> bool {
    let Some(message) = message else { return false };
    let seq = |matches: &dyn Fn(&Value) -> bool| {
        let found = session.events.iter().find(|event| {
            event.kind == "message.updated"
                && event.properties["info"]["role"] == "user"
                && matches(&event.properties["info"])
        });
        found.map(|event| event.seq)
    };
    let Some(begin) = seq(&|info| info["id"] == *message) else { return false };
    let users = session.events.iter().filter(|event| {
        event.seq > begin && event.kind == "message.updated" && event.properties["info"]["role"] == "user"
    });
    let end = users.map(|event| event.seq).min().unwrap_or(i64::MAX);
    let idle = session.events.iter().find(|event| event.seq > begin && event.kind == "session.idle");
    // The turn of an earlier prompt may still have been running.
    let before = session.events.iter().rev().find(|event| {
        event.seq < begin
            && (event.kind == "session.idle"
                || (event.kind == "message.updated" && event.properties["info"]["role"] == "user"))
    });
    let was_idle = before.is_none_or(|event| event.kind == "session.idle");
    was_idle && idle.is_some_and(|idle| idle.seq < end && idle.properties["outcome"] == "done")
}

/// Positions are 1, 2, 3, … to the head; epochs do not fall; ids are unique.
pub(super) fn events_are_numbered(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let mut blame = |what| violations.push(Violation::new(Invariant::I2, &session.id, what));
        let (mut ids, mut epoch) = (BTreeSet::new(), 0);
        for (want, event) in (1..).zip(&session.events) {
            if event.seq != want {
                blame(format!("event {} is at position {want}", event.seq));
                break;
            }
            if event.epoch < epoch {
                blame(format!("event {} has epoch {} after {epoch}", event.seq, event.epoch));
            }
            epoch = epoch.max(event.epoch);
            if !ids.insert(&event.id) {
                blame(format!("event {} repeats the id {}", event.seq, event.id));
            }
        }
        let head = session.events.last().map_or(0, |event| event.seq);
        if head != session.run.event_seq {
            blame(format!("the head is {}, but the last event is {head}", session.run.event_seq));
        }
        if epoch > session.run.epoch {
            blame(format!("an event has epoch {epoch}, but the session has {}", session.run.epoch));
        }
    }
    violations
}

/// No event changes a message after its abort.
pub(super) fn aborted_steps_end(history: &History) -> Vec<Violation> {
    let mut violations = vec![];
    for session in &history.sessions {
        let mut aborted = BTreeSet::new();
        for event in &session.events {
            let info = &event.properties["info"];
            let message = match event.kind.as_str() {
                "message.updated" => info["id"].as_str(),
                "message.part.updated" => event.properties["part"]["messageID"].as_str(),
                _ => None,
            };
            let Some(message) = message else { continue };
            if aborted.contains(message) {
                let what = format!("event {} ({}) changes {message} after its abort", event.seq, event.kind);
                violations.push(Violation::new(Invariant::I9, &session.id, what));
            }
            if event.kind == "message.updated" && info["error"]["name"] == "MessageAbortedError" {
                aborted.insert(message);
            }
        }
    }
    violations
}
