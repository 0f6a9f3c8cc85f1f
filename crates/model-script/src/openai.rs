//! OpenAI Chat Completions answers: chunks or one JSON object.

use super::body::Frame;
use super::play::{Piece, ScriptedAnswer};
use serde_json::{Value, json};

/// The chunks of a streamed answer.
pub(super) fn frames(answer: &ScriptedAnswer) -> Vec<Frame> {
    let mut frames = vec![chunk(answer, json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut calls = 0;
    for piece in &answer.pieces {
        let deltas = |text: &str, delta: &dyn Fn(String) -> Value| -> Vec<Frame> {
            let pieces = super::body::split(text, answer.chunk_chars).into_iter();
            pieces.map(|piece| chunk(answer, delta(piece), Value::Null).piece()).collect()
        };
        match piece {
            Piece::Text(text) => frames.extend(deltas(text, &|piece| json!({"content": piece}))),
            Piece::Reasoning(text) => {
                frames.extend(deltas(text, &|piece| json!({"reasoning_content": piece})))
            }
            Piece::Tool { id, name, arguments } => {
                let call = json!({
                    "index": calls, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
                frames.push(chunk(answer, json!({"tool_calls": [call]}), Value::Null));
                let delta =
                    |piece| json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]});
                frames.extend(deltas(arguments, &delta));
                calls += 1;
            }
        }
    }
    frames.push(chunk(answer, json!({}), json!(finish_reason(&answer.finish))));
    let mut last = head(answer, "chat.completion.chunk");
    last["choices"] = json!([]);
    last["usage"] = usage(answer);
    frames.push(Frame::new(format!("data: {last}\n\n")));
    frames.push(Frame::new("data: [DONE]\n\n".to_owned()));
    frames
}

/// The answer to a request without streaming.
pub(super) fn completion(answer: &ScriptedAnswer) -> Value {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in &answer.pieces {
        match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Reasoning(more) => reasoning.push_str(more),
            Piece::Tool { id, name, arguments } => {
                calls.push(
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}),
                );
            }
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let mut whole = head(answer, "chat.completion");
    whole["choices"] =
        json!([{"index": 0, "message": message, "finish_reason": finish_reason(&answer.finish)}]);
    whole["usage"] = usage(answer);
    whole
}

/// The body of an error answer.
pub(super) fn error(status: u16, message: &str) -> Value {
    let code = match status {
        401 => json!("invalid_api_key"),
        404 => json!("model_not_found"),
        413 => json!("context_length_exceeded"),
        429 => json!("rate_limit_exceeded"),
        _ => Value::Null,
    };
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn chunk(answer: &ScriptedAnswer, delta: Value, finish_reason: Value) -> Frame {
    let mut chunk = head(answer, "chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]);
    Frame::new(format!("data: {chunk}\n\n"))
}

fn head(answer: &ScriptedAnswer, object: &str) -> Value {
    json!({"id": format!("chatcmpl-{}", answer.id), "object": object, "created": 0, "model": answer.model})
}

/// OpenAI counts cached tokens as prompt tokens and reasoning as completion tokens.
fn usage(answer: &ScriptedAnswer) -> Value {
    let usage = answer.usage;
    let (prompt, completion) =
        (usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

fn finish_reason(finish: &str) -> &str {
    match finish {
        "tool-calls" => "tool_calls",
        "content-filter" => "content_filter",
        own => own,
    }
}
