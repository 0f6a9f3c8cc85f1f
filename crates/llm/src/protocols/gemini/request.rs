//! Converts our requests to the JSON of Google Gemini. <https://ai.google.dev/api/generate-content>

use super::decode::SIGNATURE;
use crate::model::{Effort, Model, Thinking};
use crate::protocols::history::{HistoryEntry, entries};
use crate::protocols::sampling;
use crate::protocols::schema;
use crate::provider::Provider;
use crate::request::{AssistantPart, Media, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Stands in for the missing signature of a call that another model made: newer models refuse calls without one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The URL for requests to `model`. The base URL may end with `/v1beta` or not.
pub fn url(provider: &Provider, model: &str) -> String {
    let base = provider.base_url.trim_end_matches('/');
    let version = if base.ends_with("/v1beta") || base.ends_with("/v1") { "" } else { "/v1beta" };
    let folder = if model.contains('/') { "" } else { "models/" };
    let mut url = format!("{base}{version}/{folder}");
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => url.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(url, "%{byte:02X}")),
        }
    }
    url.push_str(":streamGenerateContent?alt=sse");
    url
}

pub fn body(model: &Model, request: &Request) -> Value {
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    let system = request.system_text();
    if !system.is_empty() {
        set("systemInstruction", json!({"parts": [{"text": system}]}));
    }
    set("contents", Value::Array(contents(model, request)));
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(tool).collect();
        set("tools", json!([{"functionDeclarations": declarations}]));
        let config = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(json!({"mode": "ANY"})),
            ToolChoice::None => Some(json!({"mode": "NONE"})),
            ToolChoice::Named(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
        };
        if let Some(config) = config {
            set("toolConfig", json!({"functionCallingConfig": config}));
        }
    }
    set("generationConfig", generation(model, request));
    Value::Object(body)
}

fn generation(model: &Model, request: &Request) -> Value {
    let mut config = json!({"maxOutputTokens": request.output_tokens(model)});
    let (temperature, top_p) = sampling::of_request(request, model);
    for (key, value) in [("temperature", temperature), ("topP", top_p)] {
        if let Some(value) = value {
            config[key] = json!(value);
        }
    }
    if let Some(top_k) = sampling::of(&model.id).top_k.filter(|_| model.temperature) {
        config["topK"] = json!(top_k);
    }
    // Models that do not reason refuse the whole setting.
    if model.reasoning {
        config["thinkingConfig"] = thinking(model, request.variant);
    }
    config
}

fn thinking(model: &Model, effort: Option<Effort>) -> Value {
    match (model.thinking, model.effort(effort)) {
        (Thinking::Effort, Some(effort)) => {
            json!({"includeThoughts": true, "thinkingLevel": effort.as_str()})
        }
        (Thinking::Budget, Some(Effort::Off)) => json!({"thinkingBudget": 0}),
        (Thinking::Budget, Some(effort)) => {
            json!({"includeThoughts": true, "thinkingBudget": budget(effort)})
        }
        (Thinking::Fixed | Thinking::Adaptive, _) | (_, None) => json!({"includeThoughts": true}),
    }
}

/// The thinking budget in tokens. The largest value is one that every model with a budget accepts.
fn budget(effort: Effort) -> u64 {
    match effort {
        Effort::Off => 0,
        Effort::Minimal => 512,
        Effort::Low => 4_096,
        Effort::Medium => 8_192,
        Effort::High => 16_000,
        Effort::XHigh | Effort::Max => 24_576,
    }
}

fn contents(model: &Model, request: &Request) -> Vec<Value> {
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries(&request.messages) {
        let (role, parts) = match entry {
            HistoryEntry::User(parts) => {
                ("user", parts.into_iter().map(|part| user_part(model, part)).collect())
            }
            HistoryEntry::Assistant(parts) => ("model", assistant(model, &parts)),
            HistoryEntry::Results(results) => {
                // Results go into a content of their own: the API wants as many results as calls, directly after them.
                let mut parts = Vec::new();
                let mut media_parts = Vec::new();
                for result in &results {
                    let (text, media) = result.text_and_media(model);
                    parts.push(function_response(result, &text));
                    media_parts.extend(media.into_iter().map(|media| media_part(model, media)));
                }
                contents.push(("user", parts.into_iter().chain(media_parts).collect()));
                continue;
            }
        };
        match contents.last_mut() {
            _ if parts.is_empty() => {}
            Some((last, known)) if *last == role && !is_results(known) => known.extend(parts),
            Some(_) | None => contents.push((role, parts)),
        }
    }
    contents.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn is_results(parts: &[Value]) -> bool {
    parts.iter().any(|part| part.get("functionResponse").is_some())
}

fn user_part(model: &Model, part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({"text": text}),
        UserPart::Media(media) => media_part(model, media),
    }
}

fn media_part(model: &Model, media: &Media) -> Value {
    match (media.kind(model), &media.source) {
        (Ok(_), Source::Base64(data)) => json!({"inlineData": {"mimeType": media.mime, "data": data}}),
        (Ok(_), Source::Url(url)) => json!({"fileData": {"mimeType": media.mime, "fileUri": url}}),
        (Err(text), _) => json!({"text": text}),
    }
}

/// Thoughts are not sent back, but their signatures are.
fn assistant(model: &Model, parts: &[&AssistantPart]) -> Vec<Value> {
    let mut lowered: Vec<Value> = Vec::new();
    let mut of_call: Option<Value> = None;
    let mut has_call = false;
    for part in parts {
        match part {
            AssistantPart::Text { text, .. } => lowered.push(json!({"text": text})),
            AssistantPart::Reasoning { text, details, .. } => {
                let details = details.as_ref().and_then(Value::as_array).into_iter().flatten();
                for detail in details.filter(|detail| detail["type"] == SIGNATURE) {
                    let signature = detail["signature"].clone();
                    match detail["of"].as_str() {
                        Some("call") => of_call = Some(signature),
                        Some("thought") => {
                            lowered
                                .push(json!({"text": text, "thought": true, "thoughtSignature": signature}));
                        }
                        Some(_) | None => match lowered.last_mut().filter(|last| is_plain_text(last)) {
                            Some(last) => last["thoughtSignature"] = signature,
                            None => lowered.push(json!({"text": "", "thoughtSignature": signature})),
                        },
                    }
                }
            }
            AssistantPart::ToolCall { id, name, input } => {
                let mut part = json!({"functionCall": {"id": id, "name": name, "args": input}});
                // Of parallel calls, only the first has a signature. Older models have none at all.
                let is_missed = !has_call && model.thinking == Thinking::Effort;
                let missing = is_missed.then(|| json!(NO_SIGNATURE));
                if let Some(signature) = of_call.take().or(missing) {
                    part["thoughtSignature"] = signature;
                }
                has_call = true;
                lowered.push(part);
            }
        }
    }
    lowered
}

fn is_plain_text(part: &Value) -> bool {
    part.get("text").is_some() && part.get("thought").is_none() && part.get("thoughtSignature").is_none()
}

fn function_response(result: &ToolResult, text: &str) -> Value {
    let key = if result.is_error { "error" } else { "output" };
    json!({"functionResponse": {"id": result.call_id, "name": result.name, "response": {key: text}}})
}

fn tool(tool: &tool::Spec) -> Value {
    let mut declaration = json!({"name": tool.name, "description": tool.description});
    if let Some(parameters) = schema::gemini(&tool.schema) {
        declaration["parameters"] = parameters;
    }
    declaration
}

#[cfg(test)]
mod tests;
