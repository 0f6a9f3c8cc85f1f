//! Anthropic Messages, the question: from ours to its JSON. <https://docs.anthropic.com/en/api/messages>

use crate::config::{Model, Provider, Thinking};
use crate::request::{AssistantPart, Effort, Message, Request, ToolResult, ToolSpec, UserPart};
use serde_json::{Map, Value, json};

/// Version of the API that this client speaks.
pub const VERSION: &str = "2023-06-01";
/// Lets older models think between tool calls.
pub const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// The API allows four cache marks: two for the stable head, two for the growing tail.
const CACHED_SYSTEM_BLOCKS: usize = 2;
const CACHED_MESSAGES: usize = 2;
/// Smallest thinking budget that the API accepts; tokens.
const THINKING_BUDGET_MIN: u64 = 1_024;

/// Where the provider takes questions. The base address may or may not end with `/v1`.
pub fn url(provider: &Provider) -> String {
    let base = provider.base_url.trim_end_matches('/');
    if base.ends_with("/v1") { format!("{base}/messages") } else { format!("{base}/v1/messages") }
}

/// Headers of the protocol, without the key.
pub fn headers(model: &Model, request: &Request) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![("anthropic-version", VERSION)];
    if model.thinking == Thinking::Budget && request.reasoning.is_some() {
        headers.push(("anthropic-beta", BETA_INTERLEAVED));
    }
    headers
}

/// The body of the question.
///
/// The API refuses much that history contains, so: empty texts are left out (but signed reasoning is not), messages of
/// one role in a row become one, results of one step come together and first in their message, ids are cleaned, and
/// reasoning without a signature is not sent.
pub fn body(model: &Model, request: &Request) -> Value {
    let mut body = Map::new();
    let output_tokens = request.output_tokens(model);
    body.insert("model".to_owned(), json!(request.model));
    body.insert("max_tokens".to_owned(), json!(output_tokens));
    let system = system(&request.system);
    if !system.is_empty() {
        body.insert("system".to_owned(), Value::Array(system));
    }
    body.insert("messages".to_owned(), Value::Array(messages(&request.messages)));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    let is_thinking = thinking(&mut body, model, request.reasoning, output_tokens);
    // Thinking models refuse a temperature while they think.
    if let Some(temperature) = request.temperature.filter(|_| model.temperature && !is_thinking) {
        body.insert("temperature".to_owned(), json!(temperature));
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
        Thinking::Adaptive => {
            body.insert("thinking".to_owned(), json!({"type": "adaptive"}));
            body.insert("output_config".to_owned(), json!({"effort": effort.as_str()}));
            true
        }
        Thinking::Budget => {
            let wanted = match effort {
                Effort::Low => 4_000,
                Effort::Medium => 10_000,
                Effort::High => 16_000,
            };
            // The budget is part of the answer, and must leave room for the rest of it.
            let budget = std::cmp::min(wanted, output_tokens / 2);
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

fn messages(messages: &[Message]) -> Vec<Value> {
    let mut merged: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::User(parts) => ("user", parts.iter().filter_map(user_block).collect::<Vec<_>>()),
            Message::Assistant(parts) => ("assistant", parts.iter().filter_map(assistant_block).collect()),
            Message::ToolResults(results) => ("user", results.iter().map(result_block).collect()),
        };
        match merged.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, existing)) if *last == role => existing.extend(blocks),
            Some(_) | None => merged.push((role, blocks)),
        }
    }
    for (_, blocks) in merged.iter_mut().filter(|(role, _)| *role == "user") {
        // A result must come before any text that was said meanwhile.
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

fn user_block(part: &UserPart) -> Option<Value> {
    match part {
        UserPart::Text(text) => text_block(text),
        UserPart::Image { media_type, base64 } => Some(json!({
            "type": "image",
            "source": {"type": "base64", "media_type": media_type, "data": base64},
        })),
    }
}

fn assistant_block(part: &AssistantPart) -> Option<Value> {
    match part {
        AssistantPart::Text(text) => text_block(text),
        AssistantPart::Reasoning { text, signature, redacted, details: _ } => match (redacted, signature) {
            (Some(data), _) => Some(json!({"type": "redacted_thinking", "data": data})),
            (None, Some(signature)) => {
                Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
            }
            (None, None) => None,
        },
        AssistantPart::ToolCall { id, name, input } => {
            Some(json!({"type": "tool_use", "id": clean_id(id), "name": name, "input": input}))
        }
    }
}

fn result_block(result: &ToolResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": clean_id(&result.call_id)});
    if let Some(text) = text_block(&result.text) {
        block["content"] = json!([text]);
    }
    if result.is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
}

fn mark_cached(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

fn is_cacheable(block: &Value) -> bool {
    block["type"] != "thinking" && block["type"] != "redacted_thinking"
}

/// Ids may come from another provider, with characters that this one refuses.
fn clean_id(id: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    if id.is_empty() { "_".to_owned() } else { id.chars().map(clean).collect() }
}
