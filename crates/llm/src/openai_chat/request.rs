//! OpenAI Chat Completions, the question: from ours to its JSON.
//! <https://platform.openai.com/docs/api-reference/chat/create>

use crate::config::{Model, Provider, Thinking};
use crate::request::{AssistantPart, Message, Request, ToolResult, ToolSpec, UserPart};
use serde_json::{Map, Value, json};

/// Where the provider takes questions. A base address without any path gets `/v1`.
pub fn url(provider: &Provider) -> String {
    let base = provider.base_url.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { format!("{base}/chat/completions") } else { format!("{base}/v1/chat/completions") }
}

/// The body of the question. Fields that only OpenAI itself understands are sent to nobody else: compatible servers
/// differ in whether they refuse what they do not know.
pub fn body(provider: &Provider, model: &Model, request: &Request) -> Value {
    let mut body = Map::new();
    let output_tokens = request.output_tokens(model);
    body.insert("model".to_owned(), json!(request.model));
    body.insert("messages".to_owned(), Value::Array(messages(model, request)));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    let output_key = if provider.is_openai() { "max_completion_tokens" } else { "max_tokens" };
    body.insert(output_key.to_owned(), json!(output_tokens));
    if let Some(temperature) = request.temperature.filter(|_| model.temperature) {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(effort) = request.reasoning.filter(|_| model.thinking == Thinking::Effort) {
        body.insert("reasoning_effort".to_owned(), json!(effort.as_str()));
    }
    if provider.is_openai() && !request.cache_key.is_empty() {
        body.insert("prompt_cache_key".to_owned(), json!(request.cache_key));
    }
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    Value::Object(body)
}

fn messages(model: &Model, request: &Request) -> Vec<Value> {
    let mut messages = Vec::new();
    let system: Vec<&str> =
        request.system.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
    // One message: the templates of many local models accept no second one.
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system.join("\n\n")}));
    }
    for message in &request.messages {
        match message {
            Message::User(parts) => messages.extend(user(parts)),
            Message::Assistant(parts) => messages.extend(assistant(model, parts)),
            Message::ToolResults(results) => messages.extend(results.iter().map(tool_result)),
        }
    }
    messages
}

fn user(parts: &[UserPart]) -> Option<Value> {
    let part = |part: &UserPart| match part {
        UserPart::Text(text) if text.is_empty() => None,
        UserPart::Text(text) => Some(json!({"type": "text", "text": text})),
        UserPart::Image { media_type, base64 } => Some(
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{base64}")}}),
        ),
    };
    let mut parts: Vec<Value> = parts.iter().filter_map(part).collect();
    // A single text is sent as a plain string, which every server understands.
    let content = match parts.as_mut_slice() {
        [] => return None,
        [only] if only["type"] == "text" => only["text"].take(),
        _ => Value::Array(parts),
    };
    Some(json!({"role": "user", "content": content}))
}

fn assistant(model: &Model, parts: &[AssistantPart]) -> Option<Value> {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let (mut calls, mut all_details) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            AssistantPart::Text(more) => text.push_str(more),
            AssistantPart::Reasoning { text: more, details, .. } => {
                reasoning.push_str(more);
                all_details.extend(details.iter().filter_map(Value::as_array).flatten().cloned());
            }
            AssistantPart::ToolCall { id, name, input } => calls.push(json!({
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": input.to_string()},
            })),
        }
    }
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { Value::Null } else { Value::String(text) };
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    if !all_details.is_empty() {
        message["reasoning_details"] = Value::Array(all_details);
    }
    // Servers that ask for the reasoning back want the field even where it is empty.
    if let Some(field) = &model.reasoning_field {
        message[field] = Value::String(reasoning);
    }
    Some(message)
}

fn tool_result(result: &ToolResult) -> Value {
    json!({"role": "tool", "tool_call_id": result.call_id, "content": result.text})
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    })
}
