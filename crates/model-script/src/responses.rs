//! Requests and answers of OpenAI Responses: items instead of messages.

use super::body::Frame;
use super::play::{Piece, ScriptedAnswer};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The visible summary of the reasoning.
const ENCRYPTED: &str = "c2NyaXB0ZWQgdGhvdWdodHM=";

/// Converts the request to messages. The items of one answer become one message.
pub(super) fn plain(request: &Value) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    let input = match &request["input"] {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        input => input.as_array().cloned().unwrap_or_default(),
    };
    let mut is_answering = false;
    for item in input {
        let is_answer = match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call_output"), _) => {
                messages.push(json!({"role": "tool", "content": item["output"]}));
                false
            }
            (Some("function_call" | "reasoning"), _) | (_, Some("assistant")) => true,
            (_, Some(role)) => {
                messages.push(json!({"role": role, "content": as_text(&item["content"])}));
                false
            }
            (_, None) => false,
        };
        if is_answer && !is_answering {
            messages.push(json!({"role": "assistant", "content": null}));
        }
        is_answering = is_answer;
    }
    json!({
        "model": request["model"],
        "stream": request["stream"],
        "system": request["instructions"],
        "prompt_cache_key": request["prompt_cache_key"],
        "messages": messages,
    })
}

/// Renames the parts of the user's content as in the other protocols.
fn as_text(content: &Value) -> Value {
    let Some(parts) = content.as_array() else { return content.clone() };
    let part = |part: &Value| match part["type"].as_str() {
        Some("input_text") => json!({"type": "text", "text": part["text"]}),
        _ => part.clone(),
    };
    parts.iter().map(part).collect()
}

/// The real server refuses calls without outputs, outputs without calls, and reasoning that nothing follows. Its schema
/// requires the identity of reasoning and of texts in the long form.
pub(super) fn complaint(request: &Value) -> Option<String> {
    let items = request["input"].as_array()?;
    let missing = |item: &Value| {
        let is_text = item["role"] == "assistant" && item["content"].is_array();
        let keys: &[&str] = match item["type"].as_str() {
            Some("reasoning") => &["id", "summary"],
            Some("message") if is_text => &["id", "status"],
            Some(_) | None => &[],
        };
        keys.iter().find(|key| item[**key].is_null()).copied()
    };
    if let Some((at, key)) = items.iter().enumerate().find_map(|(at, item)| Some((at, missing(item)?))) {
        return Some(format!("Missing required parameter: 'input[{at}].{key}'."));
    }
    let ids = |kind: &str| -> BTreeSet<&str> {
        let of_kind = items.iter().filter(|item| item["type"] == kind);
        of_kind.filter_map(|item| item["call_id"].as_str()).collect()
    };
    let (calls, outputs) = (ids("function_call"), ids("function_call_output"));
    if let Some(id) = calls.difference(&outputs).next() {
        return Some(format!("No tool output found for function call {id}."));
    }
    if let Some(id) = outputs.difference(&calls).next() {
        return Some(format!("No tool call found for function call output with call_id {id}."));
    }
    let is_alone = |pair: &[Value]| pair[0]["type"] == "reasoning" && pair[1]["role"] == "user";
    let is_last = items.last().is_some_and(|item| item["type"] == "reasoning");
    (is_last || items.windows(2).any(is_alone))
        .then(|| "Item of type 'reasoning' was provided without its required following item.".to_owned())
}

/// The events of a streamed answer.
pub(super) fn frames(answer: &ScriptedAnswer) -> Vec<Frame> {
    let mut begun = head(answer, "in_progress");
    begun["output"] = json!([]);
    let mut frames = vec![
        frame("response.created", json!({"response": begun})),
        frame("response.in_progress", json!({"response": begun})),
    ];
    for (at, piece) in answer.pieces.iter().enumerate() {
        let deltas = |kind: &str, text: &str| -> Vec<Frame> {
            let pieces = super::body::split(text, answer.chunk_chars).into_iter();
            pieces.map(|delta| frame(kind, json!({"output_index": at, "delta": delta})).piece()).collect()
        };
        let mut empty = item(answer, at);
        let (key, nothing, inner) = match piece {
            Piece::Text(text) => ("content", json!([]), deltas("response.output_text.delta", text)),
            Piece::Reasoning(text) => {
                let part = json!({"type": "summary_text", "text": ""});
                let begin = json!({"output_index": at, "summary_index": 0, "part": part});
                let mut inner = vec![frame("response.reasoning_summary_part.added", begin)];
                inner.extend(deltas("response.reasoning_summary_text.delta", text));
                ("summary", json!([]), inner)
            }
            Piece::Tool { arguments, .. } => {
                ("arguments", json!(""), deltas("response.function_call_arguments.delta", arguments))
            }
        };
        empty[key] = nothing;
        frames.push(frame("response.output_item.added", json!({"output_index": at, "item": empty})));
        frames.extend(inner);
        let data = json!({"output_index": at, "item": item(answer, at)});
        frames.push(frame("response.output_item.done", data));
    }
    let response = response(answer);
    let kind = match response["status"].as_str() {
        Some("incomplete") => "response.incomplete",
        _ => "response.completed",
    };
    frames.push(frame(kind, json!({"response": response})));
    frames
}

/// The answer to a request without streaming.
pub(super) fn response(answer: &ScriptedAnswer) -> Value {
    let reason = match answer.finish.as_str() {
        "stop" | "tool-calls" => None,
        "length" => Some("max_output_tokens"),
        "content-filter" => Some("content_filter"),
        own => Some(own),
    };
    let mut response = head(answer, if reason.is_none() { "completed" } else { "incomplete" });
    response["incomplete_details"] = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
    response["output"] = (0..answer.pieces.len()).map(|at| item(answer, at)).collect();
    response["usage"] = usage(answer);
    response
}

fn head(answer: &ScriptedAnswer, status: &str) -> Value {
    json!({
        "id": format!("resp_{}", answer.id),
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": answer.model,
        "error": null,
    })
}

/// The whole item at position `at`.
fn item(answer: &ScriptedAnswer, at: usize) -> Value {
    let id = format!("{}_{at}", answer.id);
    match &answer.pieces[at] {
        Piece::Text(text) => json!({
            "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        Piece::Reasoning(text) => json!({
            "id": format!("rs_{id}"), "type": "reasoning", "encrypted_content": ENCRYPTED,
            "summary": [{"type": "summary_text", "text": text}],
        }),
        Piece::Tool { id: call_id, name, arguments } => json!({
            "id": format!("fc_{id}"), "type": "function_call", "status": "completed",
            "call_id": call_id, "name": name, "arguments": arguments,
        }),
    }
}

fn frame(kind: &str, mut value: Value) -> Frame {
    value["type"] = json!(kind);
    Frame::new(format!("event: {kind}\ndata: {value}\n\n"))
}

/// OpenAI counts cached tokens as input tokens and reasoning as output tokens.
fn usage(answer: &ScriptedAnswer) -> Value {
    let usage = answer.usage;
    let (input, output) =
        (usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": input + output,
    })
}
