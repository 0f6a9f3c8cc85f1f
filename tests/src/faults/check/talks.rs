//! What is to be done and who has it: a prompt and the session that got it, a subtask and the child that was made for it.

use crate::faults::{
    canary,
    history::{Call, History, Prompt},
};
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::dump::{Message, Session};

/// A prompt, or the call of a subtask.
pub(super) struct Talk<'a> {
    /// The prompt, or the one that the subtask is below.
    pub(super) prompt: &'a Prompt,
    /// What names it in its conversation.
    pub(super) canary: &'a str,
    /// The calls that are to be made for it.
    pub(super) calls: &'a [Call],
    /// The session that does it; `None` for a subtask that was never begun.
    pub(super) session: Option<&'a Session>,
    /// The message that says what to do.
    pub(super) message: Option<&'a str>,
}

/// All of them.
pub(super) fn all(history: &History) -> Vec<Talk<'_>> {
    let children = children(history);
    let mut talks = vec![];
    for prompt in &history.prompts {
        talks.push(Talk {
            prompt,
            canary: &prompt.canary,
            calls: &prompt.calls,
            session: history.session(&prompt.session_id),
            message: prompt.answers.first().map(String::as_str),
        });
        for subtask in &prompt.subtasks {
            let child = children.get(subtask.canary.as_str()).and_then(|children| children.first());
            talks.push(Talk {
                prompt,
                canary: &subtask.canary,
                calls: &subtask.calls,
                session: child.copied(),
                message: child.and_then(|child| first_prompt(child)).map(|message| message.id.as_str()),
            });
        }
    }
    talks
}

/// The children that were made for each subtask, by its canary.
pub(super) fn children(history: &History) -> BTreeMap<&str, Vec<&Session>> {
    let mut children: BTreeMap<&str, Vec<&Session>> = BTreeMap::new();
    for child in history.sessions.iter().filter(|session| session.parent_id.is_some()) {
        let Some(message) = first_prompt(child) else { continue };
        let texts = child.parts.iter().filter(|part| part.message_id == message.id);
        let text = texts.filter_map(|part| part.data["text"].as_str()).next().unwrap_or_default();
        if let Some(name) = canary::find(text).first() {
            children.entry(name).or_default().push(child);
        }
    }
    children
}

fn first_prompt(session: &Session) -> Option<&Message> {
    session.messages.iter().find(|message| message.role == "user")
}

/// The parts of tool calls that this canary names: it is in their arguments, or is what a subtask is called.
pub(super) fn parts_of<'a>(
    session: &'a Session,
    canary: &str,
) -> impl Iterator<Item = &'a testkit::dump::Part> {
    let canary = canary.to_owned();
    session.parts.iter().filter(move |part| {
        let input = &part.data["state"]["input"];
        let named = |by: &Value| canary::find(&by.to_string()).contains(&canary.as_str());
        // What a subtask is told has the canaries of all that is below it.
        part.kind == "tool" && named(if part.data["tool"] == "task" { &input["description"] } else { input })
    })
}
