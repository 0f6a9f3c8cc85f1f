//! Converts our requests to the JSON of OpenAI Chat Completions.
//! <https://platform.openai.com/docs/api-reference/chat/create>

use crate::model::{Model, Thinking};
use crate::protocols::history::{HistoryEntry, entries};
use crate::protocols::ids;
use crate::protocols::placeholder::{NO_TOOL, NO_TOOL_SAYS};
use crate::protocols::sampling;
use crate::protocols::schema;
use crate::provider::Provider;
use crate::request::{AssistantPart, Media, MediaKind, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Messages at the end that get a cache mark, for gateways that pass it on.
const CACHED_MESSAGES: usize = 2;

/// Introduces images and documents from tools in a message that the user did not write.
const TOOLS_GAVE: &str = "<system-reminder>\nOther output of the tools above:\n</system-reminder>";

/// Deviations of some compatible servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dialect {
    /// Ids have nine letters and digits, and an answer must separate a tool's result from the user's next message.
    is_mistral: bool,
    is_moonshot: bool,
    /// The server is a gateway to Anthropic's models and passes on cache marks.
    marks_cache: bool,
}

impl Dialect {
    fn of(provider: &Provider, model: &Model) -> Self {
        let id = model.id.to_lowercase();
        let is_any = |names: &[&str]| names.iter().any(|name| id.contains(name));
        Self {
            is_mistral: provider.is_at("mistral.ai")
                || is_any(&["mistral", "devstral", "codestral", "magistral"]),
            is_moonshot: provider.is_at("moonshot.ai") || provider.is_at("moonshot.cn") || is_any(&["kimi-"]),
            marks_cache: provider.is_at("openrouter.ai") && is_any(&["claude", "anthropic"]),
        }
    }

    fn call_id(self, id: &str) -> String {
        if self.is_mistral { ids::mistral(id) } else { ids::clean(id) }
    }
}

/// The URL for requests. A base URL without a path gets `/v1`.
pub fn url(provider: &Provider) -> String {
    let base = provider.base_url.trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { format!("{base}/chat/completions") } else { format!("{base}/v1/chat/completions") }
}

/// The body of the request. Only OpenAI itself receives its proprietary fields: some compatible servers refuse unknown
/// fields.
pub fn body(provider: &Provider, model: &Model, request: &Request) -> Value {
    let dialect = Dialect::of(provider, model);
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    set("model", json!(request.model));
    set("messages", Value::Array(messages(dialect, model, request)));
    if request.lacks_tools() && !provider.is_openai() {
        let schema = json!({"type": "object", "properties": {}});
        let none = tool::Spec { name: NO_TOOL.to_owned(), description: NO_TOOL_SAYS.to_owned(), schema };
        set("tools", json!([tool(dialect, &none)]));
    } else if !request.tools.is_empty() {
        set("tools", request.tools.iter().map(|spec| tool(dialect, spec)).collect());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => set("tool_choice", json!("required")),
            ToolChoice::None => set("tool_choice", json!("none")),
            ToolChoice::Named(name) => {
                set("tool_choice", json!({"type": "function", "function": {"name": name}}));
            }
        }
    }
    let output_key = if provider.is_openai() { "max_completion_tokens" } else { "max_tokens" };
    set(output_key, json!(request.output_tokens(model)));
    let (temperature, top_p) = sampling::of_request(request, model);
    for (key, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value {
            set(key, json!(value));
        }
    }
    if let Some(effort) = model.effort(request.variant).filter(|_| model.thinking == Thinking::Effort) {
        set("reasoning_effort", json!(effort.as_str()));
    }
    if provider.is_openai() && !request.cache_key.is_empty() {
        set("prompt_cache_key", json!(request.cache_key));
    }
    set("stream", json!(true));
    set("stream_options", json!({"include_usage": true}));
    Value::Object(body)
}

fn messages(dialect: Dialect, model: &Model, request: &Request) -> Vec<Value> {
    let mut messages = Vec::new();
    let system = request.system_text();
    // A single system message: the templates of many local models accept only one.
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for entry in entries(&request.messages) {
        match entry {
            HistoryEntry::User(parts) => {
                if dialect.is_mistral && messages.last().is_some_and(|last| last["role"] == "tool") {
                    messages.push(json!({"role": "assistant", "content": "Done."}));
                }
                let parts: Vec<Value> = parts.into_iter().map(|part| user_part(model, part)).collect();
                messages.push(user(parts));
            }
            HistoryEntry::Assistant(parts) => messages.extend(assistant(dialect, model, &parts)),
            HistoryEntry::Results(results) => results_of(dialect, model, &results, &mut messages),
        }
    }
    if dialect.marks_cache {
        mark_cached(&mut messages);
    }
    messages
}

/// Adds tool results as text. Other output of the tools follows in a user message.
fn results_of(dialect: Dialect, model: &Model, results: &[Cow<'_, ToolResult>], messages: &mut Vec<Value>) {
    let mut media_parts = Vec::new();
    for result in results {
        let (text, media) = result.text_and_media(model);
        let call_id = dialect.call_id(&result.call_id);
        messages.push(json!({"role": "tool", "tool_call_id": call_id, "content": text}));
        media_parts.extend(media.into_iter().map(|media| media_part(model, media)));
    }
    if media_parts.is_empty() {
        return;
    }
    if dialect.is_mistral {
        messages.push(json!({"role": "assistant", "content": "Done."}));
    }
    let says = json!({"type": "text", "text": TOOLS_GAVE});
    messages.push(user(std::iter::once(says).chain(media_parts).collect()));
}

fn user_part(model: &Model, part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"type": "text", "text": text}),
        UserPart::Media(media) => media_part(model, media),
    }
}

fn media_part(model: &Model, media: &Media) -> Value {
    let text = |text: &str| json!({"type": "text", "text": text});
    match (media.kind(model), &media.source) {
        (Ok(MediaKind::Image), _) => json!({"type": "image_url", "image_url": {"url": media.url()}}),
        (Ok(MediaKind::Pdf), Source::Base64(_)) => {
            json!({"type": "file", "file": {"filename": media.file_name(), "file_data": media.url()}})
        }
        (Ok(MediaKind::Pdf), Source::Url(url)) => {
            text(&format!("ERROR: this model reads no documents at addresses ({url}). Tell the user."))
        }
        (Err(reason), _) => text(&reason),
    }
}

/// A single text is sent as a plain string, which every server understands.
fn user(mut parts: Vec<Value>) -> Value {
    let content = match parts.as_mut_slice() {
        [only] if only["type"] == "text" => only["text"].take(),
        _ => Value::Array(parts),
    };
    json!({"role": "user", "content": content})
}

fn assistant(dialect: Dialect, model: &Model, parts: &[&AssistantPart]) -> Option<Value> {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let (mut calls, mut all_details) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            AssistantPart::Text { text: more, .. } => text.push_str(more),
            AssistantPart::Reasoning { text: more, details, .. } => {
                reasoning.push_str(more);
                let details = details.as_ref().and_then(Value::as_array).into_iter().flatten();
                all_details.extend(details.filter(|detail| is_detail(detail)).cloned());
            }
            AssistantPart::ToolCall { id, name, input } => calls.push(json!({
                "id": dialect.call_id(id),
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
    // Servers that want the reasoning back require the field even if it is empty.
    if let Some(field) = &model.reasoning_field {
        message[field] = Value::String(reasoning);
    }
    Some(message)
}

/// Whether `detail` is OpenRouter's. Other protocols store their details in the same field.
fn is_detail(detail: &Value) -> bool {
    detail["type"].as_str().is_some_and(|kind| kind.starts_with("reasoning."))
}

/// Marks the system prompt and the newest messages for caching.
fn mark_cached(messages: &mut [Value]) {
    let count = messages.len();
    for (at, message) in messages.iter_mut().enumerate() {
        if message["role"] != "system" && at + CACHED_MESSAGES < count {
            continue;
        }
        if let Some(text) = message["content"].as_str().map(str::to_owned) {
            message["content"] = json!([{"type": "text", "text": text}]);
        }
        if let Some(last) = message["content"].as_array_mut().and_then(|parts| parts.last_mut()) {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
    }
}

fn tool(dialect: Dialect, tool: &tool::Spec) -> Value {
    let parameters = schema::object(&tool.schema);
    let parameters = if dialect.is_moonshot { schema::moonshot(&parameters) } else { parameters };
    json!({
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    })
}

#[cfg(test)]
mod tests;
