//! The conversation as a model gets it: OpenCode's messages and parts in, a provider-neutral request out.

use crate::{guidance::Guidance, rights::Rights, tools};
use domain::{
    message::{Assistant, Message, ModelRef, User},
    part::{Body, Part, Reasoning, ToolState},
};
use llm::request::{AssistantPart, Request, ToolResult, UserPart};
use serde_json::{Map, Value};
use store::messages::Entry;

/// Who the agent is and how it works. The first block never changes, so that providers can cache it.
const SYSTEM: &str = include_str!("prompt/system.txt");

/// What a dead worker's call says to the model.
const INTERRUPTED: &str = "[Tool execution was interrupted]";

/// Builds the request for the next step.
pub(crate) fn request(
    entries: &[Entry],
    user: &User,
    rights: &Rights,
    model: &llm::config::Model,
    guidance: &Guidance,
) -> Request {
    let mut system = vec![SYSTEM.to_owned(), environment(user)];
    system.extend(guidance.system());
    system.extend(user.system.clone());
    let mut messages = vec![];
    for entry in entries {
        match &entry.message {
            Message::User(_) => messages.push(llm::request::Message::User(user_parts(&entry.parts))),
            Message::Assistant(assistant) => {
                messages.extend(step(assistant, &entry.parts, &user.model.model))
            }
        }
    }
    messages.retain(|message| match message {
        llm::request::Message::User(parts) => !parts.is_empty(),
        llm::request::Message::Assistant(parts) => !parts.is_empty(),
        llm::request::Message::ToolResults(results) => !results.is_empty(),
    });
    Request {
        model: user.model.model.model_id.clone(),
        system,
        messages,
        tools: tools::specs(&guidance.skills, |name| rights.hides(&user.agent, name)),
        output_tokens_max: model.output_tokens.min(OUTPUT_TOKENS_MAX),
        cache_key: user.session_id.to_string(),
        ..Request::default()
    }
}

/// Longest answer that is asked for: OpenCode's number.
const OUTPUT_TOKENS_MAX: u64 = 32_000;

fn environment(user: &User) -> String {
    format!(
        "Model: {}/{}\nWorking directory: {}\nPlatform: linux\nNetwork: off",
        user.model.model.provider_id,
        user.model.model.model_id,
        domain::session::WORKSPACE,
    )
}

fn user_parts(parts: &[(u64, Part)]) -> Vec<UserPart> {
    let text = |part: &Part| match &part.body {
        Body::Text(text) if text.ignored != Some(true) && !text.text.is_empty() => {
            Some(UserPart::Text(text.text.clone()))
        }
        _ => None,
    };
    parts.iter().filter_map(|(_, part)| text(part)).collect()
}

/// One step gives the model's own words and, if it called tools, their answers.
fn step(assistant: &Assistant, parts: &[(u64, Part)], asked: &ModelRef) -> Vec<llm::request::Message> {
    let failed = assistant.error.as_ref().is_some_and(|error| !error.is_abort());
    let unanswered = assistant.finish.is_none() && assistant.error.is_none();
    if failed || unanswered {
        return vec![];
    }
    let (mut said, mut results) = (vec![], vec![]);
    for (_, part) in parts {
        match &part.body {
            Body::Text(text) if !text.text.is_empty() => said.push(AssistantPart::Text(text.text.clone())),
            Body::Reasoning(thought) if &assistant.model.model == asked => said.push(reasoning(thought)),
            Body::Tool(tool) => {
                said.push(AssistantPart::ToolCall {
                    id: tool.call_id.clone(),
                    name: tool.tool.clone(),
                    input: tool.state.input().clone(),
                });
                let (text, is_error) = answer(&tool.state);
                results.push(ToolResult {
                    call_id: tool.call_id.clone(),
                    name: tool.tool.clone(),
                    text,
                    media: vec![],
                    is_error,
                });
            }
            Body::Text(_)
            | Body::Reasoning(_)
            | Body::File(_)
            | Body::Agent(_)
            | Body::Subtask(_)
            | Body::Compaction(_)
            | Body::Patch(_)
            | Body::Snapshot(_)
            | Body::StepStart(_)
            | Body::StepFinish(_)
            | Body::Retry(_) => {}
        }
    }
    vec![llm::request::Message::Assistant(said), llm::request::Message::ToolResults(results)]
}

fn answer(state: &ToolState) -> (String, bool) {
    match state {
        ToolState::Completed { output, .. } => (output.clone(), false),
        ToolState::Error { error, .. } => (error.clone(), true),
        ToolState::Pending { .. } | ToolState::Running { .. } => (INTERRUPTED.to_owned(), true),
    }
}

fn reasoning(thought: &Reasoning) -> AssistantPart {
    let word = |key: &str| {
        thought
            .metadata
            .as_ref()
            .and_then(|data| data.get(key))
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
    };
    AssistantPart::Reasoning {
        text: thought.text.clone(),
        signature: word("signature"),
        redacted: word("redacted"),
        details: thought.metadata.as_ref().and_then(|data| data.get("details")).cloned(),
    }
}

/// What of a reasoning block must be sent back, as it is stored.
pub(crate) fn reasoning_metadata(
    signature: Option<&str>,
    redacted: Option<&str>,
    details: Option<&Value>,
) -> Option<Map<String, Value>> {
    let mut data = Map::new();
    for (key, value) in [("signature", signature), ("redacted", redacted)] {
        if let Some(value) = value {
            data.insert(key.to_owned(), Value::from(value));
        }
    }
    if let Some(details) = details {
        data.insert("details".to_owned(), details.clone());
    }
    (!data.is_empty()).then_some(data)
}

#[cfg(test)]
mod tests;
