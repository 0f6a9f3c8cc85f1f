//! The model request of a step: converts OpenCode's messages and parts to a provider-neutral request.

use super::{media, mode, step_context::StepContext, system, user};
use crate::{
    conversation::{
        entries::{Origin, compaction, origin, visible},
        model_view::{answer_files, answer_text},
        refused::refused,
        structured,
    },
    tools::{
        bash,
        registry::{self, ToolLists},
    },
};
use domain::conversation::{
    context::Window,
    message::{Assistant, Message, ModelRef, User},
    part::{Body, Part, Reasoning, ToolState},
};
use llm::{
    model::Effort,
    request::{AssistantPart, Media, Request, ToolChoice, ToolResult, UserPart},
};
use serde_json::{Map, Value};
use settings::Agent;
use std::sync::Arc;
use store::log::messages::MessageWithParts;

/// The text that the model reads before the last step of a turn.
const LAST_STEP: &str = "<system-reminder>\nThis turn has reached its maximum number of steps. Tools are disabled. \
     Answer with text only: say that the maximum steps were reached, summarize what is done, list what is left, and \
     recommend the next step.\n</system-reminder>";

/// The context window of `model`.
pub(crate) fn window(model: &llm::model::Model) -> Window {
    Window {
        context_tokens: model.context_tokens,
        input_tokens: model.input_tokens,
        output_tokens: model.output_tokens,
        reserved_tokens: None,
        tail_tokens: None,
        tail_turns: None,
    }
}

/// Builds the request for the next step.
pub(crate) fn request(
    entries: &[MessageWithParts],
    context: &StepContext<'_>,
    model: &llm::model::Model,
) -> Request {
    let StepContext { user, permissions, structured, is_last, guidance, has_source: _ } = context;
    let mut messages = vec![];
    let mut before = None;
    let entries = visible(entries);
    let refused = refused(&entries);
    for (entry, is_refused) in entries.into_iter().zip(refused) {
        let begin = messages.len();
        match &entry.message {
            Message::User(prompt) => {
                let mut parts = user::parts(&entry.parts);
                if !parts.is_empty() && is_answered(&entry.parts) {
                    let reminder = mode::reminder(&prompt.agent, before);
                    parts.extend(reminder.map(|text| UserPart::Text(text.to_owned())));
                }
                messages.push(llm::request::Message::User(parts));
            }
            Message::Assistant(assistant) => {
                before = Some(assistant.agent.as_str());
                messages.extend(step(assistant, &entry.parts, &user.model.model));
            }
        }
        if is_refused {
            media::leave_out(&mut messages[begin..]);
        }
    }
    messages.retain(|message| match message {
        llm::request::Message::User(parts) => !parts.is_empty(),
        llm::request::Message::Assistant(parts) => !parts.is_empty(),
        llm::request::Message::ToolResults(results) => !results.is_empty(),
    });
    media::bound(&mut messages);
    if *is_last {
        // As a user message: newer models refuse a conversation that ends with their own text.
        let text = UserPart::Text(LAST_STEP.to_owned());
        messages.push(llm::request::Message::User(vec![text]));
    }
    let lists = ToolLists {
        skills: &guidance.skills,
        subagents: &permissions.described_subagents(),
        askable_hosts: &guidance.settings.askable_hosts(),
    };
    let mut offered = registry::offered(&lists, permissions.hides(&user.agent));
    if let Some(structured) = structured {
        offered.push(structured.spec());
        offered.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let tool_choice = match (structured, is_last) {
        (Some(_), true) => ToolChoice::Named(structured::NAME.to_owned()),
        (Some(_), false) => ToolChoice::Required,
        (None, true) => ToolChoice::None,
        (None, false) => ToolChoice::Auto,
    };
    Request {
        model: user.model.model.model_id.clone(),
        system: system::blocks(context),
        messages,
        tools: offered,
        tool_choice,
        output_tokens_max: window(model).answer_tokens(),
        cache_key: user.session_id.to_string(),
        variant: effort(user),
        ..Request::default()
    }
}

/// Whether an agent answers a user message in its own role.
fn is_answered(parts: &[(u64, Part)]) -> bool {
    origin(parts) != Origin::Note && compaction(parts).is_none()
}

/// The reasoning effort; an unknown word leaves it to the provider.
pub(crate) fn effort(user: &User) -> Option<Effort> {
    user.model.variant.as_deref()?.parse().ok()
}

/// Applies the settings of a configured agent.
pub(crate) fn configure(request: &mut Request, agent: &Agent) {
    if let (Some(prompt), Some(system)) = (&agent.prompt, request.system.first_mut()) {
        system.clone_from(prompt);
    }
    request.temperature = agent.temperature.or(request.temperature);
    request.top_p = agent.top_p.or(request.top_p);
}

/// The messages of one step: the model's own text and, if it called tools, their answers.
fn step(assistant: &Assistant, parts: &[(u64, Part)], model: &ModelRef) -> Vec<llm::request::Message> {
    let failed = assistant.error.as_ref().is_some_and(|error| !error.is_abort());
    let unanswered = assistant.finish.is_none() && assistant.error.is_none();
    if failed || unanswered {
        return vec![];
    }
    let is_own = &assistant.model.model == model;
    let (mut words, mut results) = (vec![], vec![]);
    for (_, part) in parts {
        match &part.body {
            // An empty text may separate two signed blocks of reasoning.
            Body::Text(text) => {
                let details = details(text.metadata.as_ref()).filter(|_| is_own);
                words.push(AssistantPart::Text { text: text.text.clone(), details });
            }
            Body::Reasoning(thought) if is_own => words.push(reasoning(thought)),
            // The reasoning of another model is plain text to this one, because its signature would be invalid.
            Body::Reasoning(thought) if !thought.text.trim().is_empty() => {
                words.push(AssistantPart::text(thought.text.clone()));
            }
            Body::Tool(tool) => {
                words.push(AssistantPart::ToolCall {
                    id: tool.call_id.clone(),
                    name: tool.tool.clone(),
                    input: tool.state.input().clone(),
                });
                let (text, media, is_error) = answer(&tool.state);
                let (call_id, name) = (tool.call_id.clone(), tool.tool.clone());
                results.push(ToolResult { call_id, name, text, media, is_error });
            }
            Body::Reasoning(_)
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
    vec![llm::request::Message::Assistant(words), llm::request::Message::ToolResults(results)]
}

fn answer(state: &ToolState) -> (Arc<String>, Vec<Media>, bool) {
    let is_error = match state {
        ToolState::Completed { .. } => false,
        ToolState::Error { .. } | ToolState::Pending { .. } | ToolState::Running { .. } => true,
    };
    let media = answer_files(state).into_iter().filter_map(user::media);
    let text = match state {
        ToolState::Completed { output, metadata, time, .. } if time.compacted.is_none() => {
            bash::text_for_model(output, metadata)
        }
        ToolState::Completed { .. }
        | ToolState::Error { .. }
        | ToolState::Pending { .. }
        | ToolState::Running { .. } => answer_text(state).to_owned().into(),
    };
    (text, media.collect(), is_error)
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
        details: details(thought.metadata.as_ref()),
    }
}

fn details(metadata: Option<&Map<String, Value>>) -> Option<Value> {
    metadata.and_then(|data| data.get("details")).cloned()
}

/// The data that must be sent back with a text or a reasoning block, in its stored form.
pub(crate) fn provider_metadata(
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
