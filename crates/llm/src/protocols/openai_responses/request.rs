//! Converts our requests to the JSON of OpenAI Responses.
//! <https://platform.openai.com/docs/api-reference/responses/create>
//!
//! Each request carries the whole conversation and the provider stores nothing, so any worker can send the next one.
//! Reasoning comes back encrypted.

use super::items::{MESSAGE, REASONING};
use crate::model::{Model, Thinking};
use crate::protocols::history::{HistoryEntry, entries};
use crate::protocols::ids;
use crate::protocols::sampling;
use crate::protocols::schema;
use crate::provider::Provider;
use crate::request::{AssistantPart, Media, MediaKind, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Map, Value, json};

/// The URL for requests. A base URL without a path gets `/v1`.
pub fn url(provider: &Provider) -> String {
    let base = provider.base_url.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { format!("{base}/responses") } else { format!("{base}/v1/responses") }
}

pub fn body(provider: &Provider, model: &Model, request: &Request) -> Value {
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    set("model", json!(request.model));
    let system = request.system_text();
    if !system.is_empty() {
        set("instructions", json!(system));
    }
    set("input", Value::Array(input(model, request)));
    if !request.tools.is_empty() {
        set("tools", request.tools.iter().map(tool).collect());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => set("tool_choice", json!("required")),
            ToolChoice::None => set("tool_choice", json!("none")),
            ToolChoice::Named(name) => set("tool_choice", json!({"type": "function", "name": name})),
        }
    }
    set("max_output_tokens", json!(request.output_tokens(model)));
    let (temperature, top_p) = sampling::of_request(request, model);
    for (key, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value {
            set(key, json!(value));
        }
    }
    if model.reasoning {
        let mut reasoning = json!({"summary": "auto"});
        if let Some(effort) = model.effort(request.variant).filter(|_| model.thinking == Thinking::Effort) {
            reasoning["effort"] = json!(effort.as_str());
        }
        set("reasoning", reasoning);
        set("include", json!(["reasoning.encrypted_content"]));
    }
    set("store", json!(false));
    if provider.is_openai() && !request.cache_key.is_empty() {
        set("prompt_cache_key", json!(request.cache_key));
    }
    set("stream", json!(true));
    Value::Object(body)
}

fn input(model: &Model, request: &Request) -> Vec<Value> {
    let mut input = Vec::new();
    for entry in entries(&request.messages) {
        match entry {
            HistoryEntry::User(parts) => {
                let content: Vec<Value> = parts.into_iter().map(|part| user_part(model, part)).collect();
                input.push(json!({"type": MESSAGE, "role": "user", "content": content}));
            }
            HistoryEntry::Assistant(parts) => assistant(&parts, &mut input),
            HistoryEntry::Results(results) => {
                input.extend(results.iter().map(|result| tool_result(model, result)))
            }
        }
    }
    input
}

fn user_part(model: &Model, part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "input_text", "text": text}),
        UserPart::Media(media) => media_part(model, media),
    }
}

fn media_part(model: &Model, media: &Media) -> Value {
    match (media.kind(model), &media.source) {
        (Ok(MediaKind::Image), _) => {
            json!({"type": "input_image", "image_url": media.url(), "detail": "auto"})
        }
        (Ok(MediaKind::Pdf), Source::Url(url)) => json!({"type": "input_file", "file_url": url}),
        (Ok(MediaKind::Pdf), Source::Base64(_)) => {
            json!({"type": "input_file", "filename": media.file_name(), "file_data": media.url()})
        }
        (Err(text), _) => json!({"type": "input_text", "text": text}),
    }
}

/// Adds one item per part. The API refuses reasoning that nothing follows, so reasoning at the end of a cut-off answer
/// is left out.
fn assistant(parts: &[&AssistantPart], input: &mut Vec<Value>) {
    let is_reasoning = |part: &&&AssistantPart| matches!(part, AssistantPart::Reasoning { .. });
    let trailing = parts.iter().rev().take_while(is_reasoning).count();
    for part in &parts[..parts.len() - trailing] {
        match part {
            AssistantPart::Text { text, details } => {
                let mut details = details.as_ref().and_then(Value::as_array).into_iter().flatten();
                let identity = details.find(|detail| detail["type"] == MESSAGE);
                input.push(identity.map_or_else(|| plain_text(text), |identity| own_text(text, identity)));
            }
            AssistantPart::Reasoning { details, .. } => {
                let details = details.as_ref().and_then(Value::as_array).into_iter().flatten();
                input.extend(details.filter(|detail| detail["type"] == REASONING).cloned());
            }
            AssistantPart::ToolCall { id, name, input: arguments } => input.push(json!({
                "type": "function_call",
                "call_id": ids::clean(id),
                "name": name,
                "arguments": arguments.to_string(),
            })),
        }
    }
}

/// A text of an earlier answer, as the API gave it.
fn own_text(text: &str, identity: &Value) -> Value {
    let mut message = json!({
        "type": MESSAGE,
        "id": identity["id"],
        "role": "assistant",
        "status": identity["status"].as_str().unwrap_or("completed"),
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    });
    if let Some(phase) = identity["phase"].as_str() {
        message["phase"] = json!(phase);
    }
    message
}

/// A text that has no identity at this provider, for example another model's. The API takes such texts only in this short
/// form.
fn plain_text(text: &str) -> Value {
    json!({"type": MESSAGE, "role": "assistant", "content": text})
}

fn tool_result(model: &Model, result: &ToolResult) -> Value {
    let output = if result.media.is_empty() {
        json!(result.text)
    } else {
        let text =
            Some(json!({"type": "input_text", "text": result.text})).filter(|_| !result.text.is_empty());
        text.into_iter().chain(result.media.iter().map(|media| media_part(model, media))).collect()
    };
    json!({"type": "function_call_output", "call_id": ids::clean(&result.call_id), "output": output})
}

/// Converts a tool. It is not strict, because the strict dialect requires every property.
fn tool(tool: &tool::Spec) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": schema::object(&tool.schema),
        "strict": false,
    })
}

#[cfg(test)]
mod tests;
