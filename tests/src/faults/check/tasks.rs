//! Tasks and the sessions that perform them: a prompt and its session, a subtask and its child session.

use crate::faults::{
    history::{Call, History, Prompt},
    workload::canary,
};
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::dump::{Message, Session};

/// A prompt or a subtask.
pub(super) struct Task<'a> {
    /// The prompt, or the prompt above the subtask.
    pub(super) prompt: &'a Prompt,
    /// Its name in the conversation.
    pub(super) canary: &'a str,
    /// The calls of its script.
    pub(super) calls: &'a [Call],
    /// The session that performs it; `None` for a subtask that never started.
    pub(super) session: Option<&'a Session>,
    /// The message of its prompt.
    pub(super) message: Option<&'a str>,
}

/// Lists all tasks of a history.
pub(super) fn all(history: &History) -> Vec<Task<'_>> {
    let children = children(history);
    let mut tasks = vec![];
    for prompt in &history.prompts {
        tasks.push(Task {
            prompt,
            canary: &prompt.canary,
            calls: &prompt.calls,
            session: history.session(&prompt.session_id),
            message: prompt.answers.first().map(String::as_str),
        });
        for subtask in &prompt.subtasks {
            let child = children.get(subtask.canary.as_str()).and_then(|children| children.first());
            tasks.push(Task {
                prompt,
                canary: &subtask.canary,
                calls: &subtask.calls,
                session: child.copied(),
                message: child.and_then(|child| first_prompt(child)).map(|message| message.id.as_str()),
            });
        }
    }
    tasks
}

/// Lists the children of each subtask, by its canary.
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

/// Returns the parts of the tool calls with this canary in their arguments. The canary of a subtask is in its description.
pub(super) fn parts_of<'a>(
    session: &'a Session,
    canary: &str,
) -> impl Iterator<Item = &'a testkit::dump::Part> {
    let canary = canary.to_owned();
    session.parts.iter().filter(move |part| {
        let input = &part.data["state"]["input"];
        let named = |by: &Value| canary::find(&by.to_string()).contains(&canary.as_str());
        // The prompt of a subtask contains the canaries of all subtasks below it.
        part.kind == "tool" && named(if part.data["tool"] == "task" { &input["description"] } else { input })
    })
}
