//! Anthropic Messages answers: an event stream or one JSON object.

use super::body::Frame;
use super::play::{Piece, ScriptedAnswer};
use serde_json::{Value, json};

/// The events of a streamed answer.
pub(super) fn frames(answer: &ScriptedAnswer) -> Vec<Frame> {
    let mut start = message(answer);
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    let mut frames = vec![frame("message_start", json!({"message": start})), frame("ping", json!({}))];
    for (index, piece) in answer.pieces.iter().enumerate() {
        let deltas = |text: &str, kind: &str, key: &str| -> Vec<Frame> {
            let delta = |piece: String| {
                let delta = json!({"type": kind, key: piece});
                frame("content_block_delta", json!({"index": index, "delta": delta})).piece()
            };
            super::body::split(text, answer.chunk_chars).into_iter().map(delta).collect()
        };
        let (block, inner) = match piece {
            Piece::Text(text) => (json!({"type": "text", "text": ""}), deltas(text, "text_delta", "text")),
            Piece::Reasoning(text) => {
                let mut inner = deltas(text, "thinking_delta", "thinking");
                let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
                inner.push(frame("content_block_delta", json!({"index": index, "delta": signature})));
                (json!({"type": "thinking", "thinking": "", "signature": ""}), inner)
            }
            Piece::Tool { id, name, arguments } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                (block, deltas(arguments, "input_json_delta", "partial_json"))
            }
        };
        frames.push(frame("content_block_start", json!({"index": index, "content_block": block})));
        frames.extend(inner);
        frames.push(frame("content_block_stop", json!({"index": index})));
    }
    let delta = json!({"stop_reason": stop_reason(&answer.finish), "stop_sequence": null});
    frames.push(frame("message_delta", json!({"delta": delta, "usage": usage(answer)})));
    frames.push(frame("message_stop", json!({})));
    frames
}

/// The answer to a request without streaming.
pub(super) fn message(answer: &ScriptedAnswer) -> Value {
    let block = |piece: &Piece| match piece {
        Piece::Text(text) => json!({"type": "text", "text": text}),
        Piece::Reasoning(text) => json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}),
        Piece::Tool { id, name, arguments } => {
            let input: Value = serde_json::from_str(arguments).unwrap_or_default();
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    };
    json!({
        "id": format!("msg_{}", answer.id),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": answer.pieces.iter().map(block).collect::<Vec<_>>(),
        "stop_reason": stop_reason(&answer.finish),
        "stop_sequence": null,
        "usage": usage(answer),
    })
}

/// The body of an error answer.
pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

const SIGNATURE: &str = "c2NyaXB0ZWQ=";

fn frame(kind: &str, mut value: Value) -> Frame {
    value["type"] = json!(kind);
    Frame::new(format!("event: {kind}\ndata: {value}\n\n"))
}

/// Anthropic counts reasoning as output.
fn usage(answer: &ScriptedAnswer) -> Value {
    let usage = answer.usage;
    json!({
        "input_tokens": usage.input,
        "output_tokens": usage.output + usage.reasoning,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    })
}

fn stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "tool-calls" => "tool_use",
        "length" => "max_tokens",
        "content-filter" => "refusal",
        own => own,
    }
}
