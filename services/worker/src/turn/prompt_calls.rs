//! The calls that a prompt itself requests, without a model: tasks for subagents, and a shell command.

use crate::{
    conversation::entries::{self, PromptCall},
    process::clock::now,
    record::WriteError,
    tools::{bash, task, tool::Tool},
    turn::{session::Session, step},
};
use domain::{
    conversation::{message::Message, part::Body},
    event::{Event, Status},
    ids::MessageId,
    policy::permission::Verdict,
    turn::call::CallId,
};
use serde_json::Value;
use store::log::record::Progress;

/// Stores the calls that the prompt requests as a step that has begun. Returns their ids.
pub(in crate::turn) async fn begin(session: &mut Session) -> Result<Vec<CallId>, WriteError> {
    let Some(user) = session.newest_user().cloned() else { return Ok(vec![]) };
    let mut message = step::assistant(session.deps.id(MessageId::make), &user);
    message.finish = Some("stop".to_owned());
    let mut calls = vec![];
    for call in entries::prompt_calls(session.conversation().entries()) {
        let call = match call {
            PromptCall::Task(part_id, task) => {
                if calls.is_empty() {
                    (message.mode, message.agent) = (task.agent.clone(), task.agent.clone());
                }
                // The model of the turn must read the answer of a task.
                message.finish = Some("tool-calls".to_owned());
                task::call(part_id, task, now())
            }
            PromptCall::Shell(part_id, command) => bash::call(part_id, command, now()),
        };
        calls.push(call);
    }
    if calls.is_empty() {
        return Ok(vec![]);
    }
    let id = message.id.clone();
    let ids = calls.iter().map(|call| call.call_id.clone()).collect();
    let mut events = vec![
        Event::SessionStatus(Status::Busy),
        Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message)))),
    ];
    events.extend(calls.into_iter().map(|call| session.new_part(&id, Body::Tool(call))));
    session.write_announced(events, Progress::None).await?;
    Ok(ids)
}

/// Whether the newest step runs a shell command of a person.
pub(in crate::turn) fn is_shell_step(session: &Session) -> bool {
    session.conversation().person_timeout_ms().is_some()
}

/// Whether a person must not run a shell command. The person who runs it thereby satisfies a rule that asks.
pub(in crate::turn) async fn is_shell_denied(session: &Session, input: &Value) -> bool {
    session.judge().verdict(Tool::Bash, input).await == Verdict::Deny
}
