//! Converts our requests to the JSON of Anthropic Messages. <https://docs.anthropic.com/en/api/messages>

use crate::model::{Effort, Model, Thinking};
use crate::protocols::history::{HistoryEntry, entries};
use crate::protocols::ids;
use crate::protocols::placeholder::{NO_TOOL, NO_TOOL_SAYS};
use crate::protocols::sampling;
use crate::protocols::schema;
use crate::provider::Provider;
use crate::request::UserPart;
use crate::request::{AssistantPart, Media, MediaKind, Request, Source, ToolChoice, ToolResult};
use domain::policy::tool;
use serde_json::{Map, Value, json};

/// The API version in use.
pub const VERSION: &str = "2023-06-01";
/// Allows older models to think between tool calls.
pub const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// The API allows four cache marks: two for the stable head, two for the growing tail.
const CACHED_SYSTEM_BLOCKS: usize = 2;
const CACHED_MESSAGES: usize = 2;
/// Smallest thinking budget that the API accepts; tokens.
const THINKING_BUDGET_MIN: u64 = 1_024;

/// The URL for requests. The base URL may end with `/v1` or not.
pub fn url(provider: &Provider) -> String {
    let base = provider.base_url.trim_end_matches('/');
    if base.ends_with("/v1") { format!("{base}/messages") } else { format!("{base}/v1/messages") }
}

/// Headers of the protocol, without the key.
pub fn headers(model: &Model, request: &Request) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![("anthropic-version", VERSION)];
    if model.thinking == Thinking::Budget && request.variant.is_some_and(|effort| effort != Effort::Off) {
        headers.push(("anthropic-beta", BETA_INTERLEAVED));
    }
    headers
}

/// The body of the request.
///
/// The API refuses much that a history contains, so the body is cleaned up: empty texts are left out (except around
/// signed reasoning), consecutive messages of one role are merged, the results of one step come together and first in
/// their message, ids are cleaned, reasoning without a signature is left out, and a history with calls always comes
/// with at least one tool.
pub fn body(model: &Model, request: &Request) -> Value {
    let mut body = Map::new();
    let output_tokens = request.output_tokens(model);
    body.insert("model".to_owned(), json!(request.model));
    body.insert("max_tokens".to_owned(), json!(output_tokens));
    let system = system(&request.system);
    if !system.is_empty() {
        body.insert("system".to_owned(), Value::Array(system));
    }
    body.insert("messages".to_owned(), Value::Array(messages(model, request)));
    if request.lacks_tools() {
        body.insert(
            "tools".to_owned(),
            json!([{"name": NO_TOOL, "description": NO_TOOL_SAYS,
            "input_schema": {"type": "object", "properties": {}}}]),
        );
    } else if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
        if let Some(choice) = tool_choice(&request.tool_choice) {
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    // The API refuses thinking together with a forced tool choice.
    let effort = model.effort(request.variant).filter(|_| !request.tool_choice.is_forced());
    let is_thinking = thinking(&mut body, model, effort, output_tokens);
    // The API refuses sampling parameters while the model thinks.
    if !is_thinking {
        let (temperature, top_p) = sampling::of_request(request, model);
        for (key, value) in [("temperature", temperature), ("top_p", top_p)] {
            if let Some(value) = value {
                body.insert(key.to_owned(), json!(value));
            }
        }
    }
    body.insert("stream".to_owned(), json!(true));
    Value::Object(body)
}

fn thinking(
    body: &mut Map<String, Value>,
    model: &Model,
    effort: Option<Effort>,
    output_tokens: u64,
) -> bool {
    let Some(effort) = effort else { return false };
    match model.thinking {
        Thinking::Fixed | Thinking::Effort => false,
        Thinking::Adaptive if effort == Effort::Off => {
            body.insert("thinking".to_owned(), json!({"type": "disabled"}));
            false
        }
        Thinking::Adaptive => {
            body.insert("thinking".to_owned(), json!({"type": "adaptive"}));
            body.insert("output_config".to_owned(), json!({"effort": effort.as_str()}));
            true
        }
        Thinking::Budget => {
            let tokens = match effort {
                Effort::Off => return false,
                Effort::Minimal => 2_000,
                Effort::Low => 4_000,
                Effort::Medium => 10_000,
                Effort::High => 16_000,
                Effort::XHigh | Effort::Max => 32_000,
            };
            // The budget is part of the answer limit and must leave room for the rest.
            let budget = std::cmp::min(tokens, output_tokens / 2);
            if budget < THINKING_BUDGET_MIN {
                return false;
            }
            body.insert("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}));
            true
        }
    }
}

fn system(texts: &[String]) -> Vec<Value> {
    let mut blocks: Vec<Value> = texts
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({"type": "text", "text": text}))
        .collect();
    blocks.iter_mut().take(CACHED_SYSTEM_BLOCKS).for_each(mark_cached);
    blocks
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::None => Some(json!({"type": "none"})),
        ToolChoice::Named(name) => Some(json!({"type": "tool", "name": name})),
    }
}

fn messages(model: &Model, request: &Request) -> Vec<Value> {
    let mut merged: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for entry in entries(&request.messages) {
        let (role, blocks) = match entry {
            HistoryEntry::User(parts) => {
                ("user", parts.iter().map(|part| user_block(model, part)).collect::<Vec<_>>())
            }
            HistoryEntry::Assistant(parts) => ("assistant", assistant_blocks(&parts)),
            HistoryEntry::Results(results) => {
                ("user", results.iter().map(|result| result_block(model, result)).collect())
            }
        };
        match merged.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, existing)) if *last == role => existing.extend(blocks),
            Some(_) | None => merged.push((role, blocks)),
        }
    }
    for (_, blocks) in merged.iter_mut().filter(|(role, _)| *role == "user") {
        // Results must come before any text that the user sent meanwhile.
        blocks.sort_by_key(|block| block["type"] != "tool_result");
    }
    let count = merged.len();
    let to_message = |(at, (role, mut blocks)): (usize, (&'static str, Vec<Value>))| {
        if at + CACHED_MESSAGES >= count
            && let Some(last) = blocks.iter_mut().rev().find(|block| is_cacheable(block))
        {
            mark_cached(last);
        }
        json!({"role": role, "content": blocks})
    };
    merged.into_iter().enumerate().map(to_message).collect()
}

fn user_block(model: &Model, part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "text", "text": text}),
        UserPart::Media(media) => media_block(model, media),
    }
}

fn media_block(model: &Model, media: &Media) -> Value {
    let kind = match media.kind(model) {
        Ok(MediaKind::Image) => "image",
        Ok(MediaKind::Pdf) => "document",
        Err(text) => return json!({"type": "text", "text": text}),
    };
    let source = match &media.source {
        Source::Base64(data) => json!({"type": "base64", "media_type": media.mime, "data": data}),
        Source::Url(url) => json!({"type": "url", "url": url}),
    };
    json!({"type": kind, "source": source})
}

/// The blocks of an answer.
fn assistant_blocks(parts: &[&AssistantPart]) -> Vec<Value> {
    let blocks: Vec<Value> = parts.iter().filter_map(|part| assistant_block(part)).collect();
    // An answer that ends with reasoning was cut off before its text. The API refuses such an ending.
    let length = blocks.iter().rposition(is_cacheable).map_or(0, |at| at + 1);
    blocks.into_iter().take(length).collect()
}

fn assistant_block(part: &AssistantPart) -> Option<Value> {
    match part {
        // An empty text remains only between signed reasoning blocks, and the API refuses empty text.
        AssistantPart::Text { text, .. } => {
            Some(text_block(text).unwrap_or_else(|| json!({"type": "text", "text": " "})))
        }
        AssistantPart::Reasoning { text, signature, redacted, details: _ } => match (redacted, signature) {
            (Some(data), _) => Some(json!({"type": "redacted_thinking", "data": data})),
            (None, Some(signature)) => {
                Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
            }
            (None, None) => None,
        },
        AssistantPart::ToolCall { id, name, input } => {
            Some(json!({"type": "tool_use", "id": ids::clean(id), "name": name, "input": input}))
        }
    }
}

fn result_block(model: &Model, result: &ToolResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": ids::clean(&result.call_id)});
    let media = result.media.iter().map(|media| media_block(model, media));
    let content: Vec<Value> = text_block(&result.text).into_iter().chain(media).collect();
    if !content.is_empty() {
        block["content"] = json!(content);
    }
    if result.is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn tool(tool: &tool::Spec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": schema::object(&tool.schema)})
}

fn mark_cached(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

fn is_cacheable(block: &Value) -> bool {
    block["type"] != "thinking" && block["type"] != "redacted_thinking"
}

#[cfg(test)]
mod tests;
