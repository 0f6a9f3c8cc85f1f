//! Requests and answers of Gemini: contents instead of messages, calls in one piece, and signatures that must come
//! back.

use super::body::Frame;
use super::play::{Piece, ScriptedAnswer};
use serde_json::{Value, json};

/// The signature of the first call of an answer. The next request must return it.
const SIGNATURE: &str = "c2NyaXB0ZWQgY2FsbA==";

/// Converts the request to messages. The `path` contains the model and whether to stream.
pub(super) fn plain(request: &Value, path: &str) -> Value {
    let call = path.rsplit('/').next().unwrap_or_default();
    let (model, method) = call.split_once(':').unwrap_or((call, ""));
    let mut messages: Vec<Value> = Vec::new();
    for content in request["contents"].as_array().into_iter().flatten() {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        if content["role"] == "model" {
            messages.push(json!({"role": "assistant", "content": null}));
            continue;
        }
        for response in parts.iter().filter_map(|part| part.get("functionResponse")) {
            let result = ["output", "error"].iter().find_map(|key| response["response"].get(key));
            messages.push(json!({"role": "tool", "content": result}));
        }
        messages.extend(texts(&parts).map(|content| json!({"role": "user", "content": content})));
    }
    let system = request["systemInstruction"]["parts"].as_array().and_then(|parts| texts(parts));
    json!({
        "model": model,
        "stream": method == "streamGenerateContent",
        "system": system,
        "messages": messages,
    })
}

fn texts(parts: &[Value]) -> Option<Value> {
    let part = |part: &Value| Some(json!({"type": "text", "text": part.get("text")?}));
    let texts: Vec<Value> = parts.iter().filter_map(part).collect();
    (!texts.is_empty()).then_some(Value::Array(texts))
}

/// The real server refuses calls without an immediate result, and calls of this turn without their signature.
pub(super) fn complaint(request: &Value) -> Option<String> {
    let contents = request["contents"].as_array()?;
    let count = |content: Option<&Value>, key: &str| {
        let parts = content.and_then(|content| content["parts"].as_array()).into_iter().flatten();
        parts.filter(|part| part.get(key).is_some()).count()
    };
    for (at, content) in contents.iter().enumerate() {
        let (calls, answers) =
            (count(Some(content), "functionCall"), count(contents.get(at + 1), "functionResponse"));
        if calls != answers {
            return Some(
                "The number of function response parts must equal that of function call parts.".to_owned(),
            );
        }
        let mut parts = content["parts"].as_array().into_iter().flatten();
        let first = parts.find(|part| part.get("functionCall").is_some());
        if first.is_some_and(|part| part.get("thoughtSignature").is_none()) {
            return Some("Function call is missing a thought_signature in functionCall parts.".to_owned());
        }
    }
    let has_extra = count(contents.first(), "functionResponse") > 0;
    has_extra.then(|| "A function response must come right after its function call.".to_owned())
}

/// The chunks of a streamed answer.
pub(super) fn frames(answer: &ScriptedAnswer) -> Vec<Frame> {
    let mut frames = Vec::new();
    for part in parts(answer) {
        let Some(text) = part["text"].as_str() else {
            frames.push(chunk(answer, vec![part]).piece());
            continue;
        };
        for piece in super::body::split(text, answer.chunk_chars) {
            let mut part = part.clone();
            part["text"] = json!(piece);
            frames.push(chunk(answer, vec![part]).piece());
        }
    }
    frames.push(Frame::new(format!("data: {}\n\n", with_parts(answer, vec![json!({"text": ""})], true))));
    frames
}

/// The answer to a request without streaming.
pub(super) fn response(answer: &ScriptedAnswer) -> Value {
    with_parts(answer, parts(answer), true)
}

/// The body of an error answer.
pub(super) fn error(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": word}})
}

fn parts(answer: &ScriptedAnswer) -> Vec<Value> {
    let mut is_first = true;
    let part = |piece: &Piece| match piece {
        Piece::Text(text) => json!({"text": text}),
        Piece::Reasoning(text) => json!({"text": text, "thought": true}),
        Piece::Tool { id, name, arguments } => {
            let args: Value = serde_json::from_str(arguments).unwrap_or_default();
            let mut part = json!({"functionCall": {"id": id, "name": name, "args": args}});
            if std::mem::take(&mut is_first) {
                part["thoughtSignature"] = json!(SIGNATURE);
            }
            part
        }
    };
    answer.pieces.iter().map(part).collect()
}

fn chunk(answer: &ScriptedAnswer, parts: Vec<Value>) -> Frame {
    Frame::new(format!("data: {}\n\n", with_parts(answer, parts, false)))
}

fn with_parts(answer: &ScriptedAnswer, parts: Vec<Value>, is_last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if is_last {
        candidate["finishReason"] = json!(finish_reason(&answer.finish));
    }
    let mut chunk = json!({"candidates": [candidate], "modelVersion": answer.model, "responseId": answer.id});
    if is_last {
        chunk["usageMetadata"] = usage(answer);
    }
    chunk
}

/// Gemini counts cached tokens as prompt tokens, and reasoning separately.
fn usage(answer: &ScriptedAnswer) -> Value {
    let usage = answer.usage;
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "promptTokenCount": prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": prompt + usage.output + usage.reasoning,
    })
}

fn finish_reason(finish: &str) -> &str {
    match finish {
        "stop" | "tool-calls" => "STOP",
        "length" => "MAX_TOKENS",
        "content-filter" => "SAFETY",
        own => own,
    }
}
