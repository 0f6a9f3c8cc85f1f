#![allow(clippy::print_stderr)]
//! Recorded answers of real providers. The tests run only if a folder of recordings lies next to the repository.

use super::{answer, usable_calls};
use crate::accumulate::{AccumulatedAnswer, Block};
use crate::error::Error;
use crate::event::Finish;
use crate::protocols::classify;
use crate::provider::Protocol;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Cut points tried for one recording: every byte of a small one, every n-th byte of a large one.
const CUTS_MAX: usize = 400;

struct Recording {
    name: String,
    protocol: Protocol,
    body: Vec<u8>,
    expected: Value,
}

fn recordings(extension: &str) -> Option<Vec<Recording>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/contract/llm-fixtures");
    if !fixtures.is_dir() {
        eprintln!("skipped: no fixtures next to the repository");
        return None;
    }
    let mut found = Vec::new();
    for (folder, protocol) in [
        ("anthropic", Protocol::Anthropic),
        ("openai-chat", Protocol::OpenAiChat),
        ("openai-compatible", Protocol::OpenAiChat),
        ("openai-responses", Protocol::OpenAiResponses),
        ("gemini", Protocol::Gemini),
    ] {
        for entry in fs::read_dir(fixtures.join(folder)).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let expected = path.with_extension("expected.json");
            if path.extension().is_some_and(|is| is == extension) && expected.is_file() {
                found.push(Recording {
                    name: path.display().to_string(),
                    protocol,
                    body: fs::read(&path).unwrap(),
                    expected: serde_json::from_slice(&fs::read(expected).unwrap()).unwrap(),
                });
            }
        }
    }
    assert!(found.len() >= 4, "the folder lost its recordings");
    Some(found)
}

#[test]
fn recorded_streams_reach_their_outcome_whole_and_byte_by_byte() {
    for recording in recordings("sse").unwrap_or_default() {
        for piece in [recording.body.len(), 1, 7] {
            let (answer, outcome) = answer(recording.protocol, &recording.body, piece);
            compare(&recording, &answer, outcome.as_ref());
        }
    }
}

#[test]
fn a_cut_recorded_stream_is_never_whole_and_none_of_its_calls_may_run() {
    for recording in recordings("sse").unwrap_or_default() {
        let body = &recording.body;
        let is_whole = |bytes: &[u8]| answer(recording.protocol, bytes, bytes.len().max(1)).1.is_ok();
        // The position after the terminal event. Every shorter prefix must fail, every longer one must succeed.
        let complete = is_whole_answer(&recording.expected);
        let end = terminal_end(&recording);
        for cut in (0..body.len()).step_by(body.len().div_ceil(CUTS_MAX)) {
            let (answer, outcome) = answer(recording.protocol, &body[..cut], cut.max(1));
            let is_past_end = end.is_some_and(|end| cut >= end);
            // An error may follow the terminal event. Until it is read, the answer looks complete.
            if complete || !is_past_end {
                assert_eq!(outcome.is_ok(), is_past_end, "{} cut at {cut} of {}", recording.name, body.len());
            }
            assert!(
                (recording.expected["complete"] == true && is_past_end) || usable_calls(&answer) == 0,
                "{} cut at {cut}",
                recording.name
            );
        }
        if let Some(end) = end.filter(|_| complete) {
            assert!(
                !is_whole(&body[..end - 1]) && is_whole(&body[..end]),
                "{} ends at {end}",
                recording.name
            );
        }
    }
}

/// The number of bytes up to the end of the terminal event.
fn terminal_end(recording: &Recording) -> Option<usize> {
    let text = std::str::from_utf8(&recording.body).unwrap();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_end();
        let value = trimmed.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
        let is_end = value.is_some_and(|value| match recording.protocol {
            Protocol::Anthropic => value["type"] == "message_stop",
            Protocol::OpenAiChat => value.pointer("/choices/0/finish_reason").is_some_and(Value::is_string),
            Protocol::OpenAiResponses => {
                value["type"] == "response.completed" || value["type"] == "response.incomplete"
            }
            Protocol::Gemini => value.pointer("/candidates/0/finishReason").is_some_and(Value::is_string),
        });
        if is_end {
            return Some(at + trimmed.len());
        }
        at += line.len();
    }
    None
}

/// An answer that reached the length limit is complete as an answer, though none of its calls may run.
fn is_whole_answer(expected: &Value) -> bool {
    expected["complete"] == true || expected["finish_reason"] == "max_output_tokens"
}

fn compare(recording: &Recording, answer: &AccumulatedAnswer, outcome: Result<&(), &Error>) {
    let (name, expected) = (&recording.name, &recording.expected);
    if expected["unsupported_protocol"] == true {
        assert!(outcome.is_err() && usable_calls(answer) == 0, "{name}");
        return;
    }
    let complete = is_whole_answer(expected);
    assert_eq!(outcome.is_ok(), complete, "{name}: {outcome:?}");
    assert_eq!(answer.model, expected["model"].as_str().unwrap_or_default(), "{name}");
    let text =
        format!("{}{}", expected["text"].as_str().unwrap(), expected["refusal"].as_str().unwrap_or_default());
    assert_eq!(texts(answer), text, "{name}");
    assert_eq!(reasoning(recording.protocol, answer), expected["reasoning"], "{name}");
    if let Some(count) = expected["thought_signatures"].as_u64() {
        assert_eq!(signatures(answer) as u64, count, "{name}");
    }
    let reason = expected["finish_reason"].as_str();
    let is_cut =
        matches!(reason, Some("length" | "max_tokens" | "content_filter" | "max_output_tokens" | "SAFETY"));
    assert_eq!(calls(recording.protocol, answer), expected_calls(expected), "{name}");
    if !complete || is_cut {
        assert_eq!(usable_calls(answer), 0, "{name}");
    }
    if complete {
        // Responses has no finish reason for an answer that waits for tools.
        let raw = answer.finish.as_ref().map(|(reason, raw)| match (reason, raw.as_str()) {
            (Finish::ToolCalls, "completed") => "tool_calls",
            (_, raw) => raw,
        });
        assert_eq!(json!(raw), expected["finish_reason"], "{name}");
    }
    usage(recording, answer);
}

fn usage(recording: &Recording, answer: &AccumulatedAnswer) {
    let (name, expected) = (&recording.name, &recording.expected["usage"]);
    let Some(tokens) = answer.tokens else {
        assert!(expected.is_null() || expected["input_tokens"].is_null(), "{name}");
        return;
    };
    let count = |key: &str| expected[key].as_u64().unwrap_or_default();
    let input = match recording.protocol {
        Protocol::Anthropic => tokens.input,
        Protocol::OpenAiChat | Protocol::OpenAiResponses | Protocol::Gemini => tokens.prompt(),
    };
    let reasoning = count("reasoning_tokens");
    // Gemini counts reasoning separately.
    let inside = if recording.protocol == Protocol::Gemini { 0 } else { reasoning };
    let got = [input, tokens.output, tokens.reasoning, tokens.cache_read, tokens.cache_write];
    let want = [
        count("input_tokens"),
        count("output_tokens").saturating_sub(inside),
        reasoning,
        count("cache_read"),
        count("cache_write"),
    ];
    assert_eq!(got, want, "{name}");
}

fn texts(answer: &AccumulatedAnswer) -> String {
    let text = |block: &Block| match block {
        Block::Text(text) => text.clone(),
        Block::Reasoning { .. } | Block::ToolCall { .. } | Block::InvalidToolCall { .. } => String::new(),
    };
    answer.blocks.iter().map(text).collect()
}

fn reasoning(protocol: Protocol, answer: &AccumulatedAnswer) -> Value {
    let one = |block: &Block| match block {
        Block::Reasoning { redacted: Some(data), .. } => {
            Some(json!({"redacted": true, "data_len": data.len()}))
        }
        Block::Reasoning { text, signature: Some(signature), .. } => {
            Some(json!({"text": text, "signature": signature}))
        }
        Block::Reasoning { text, details, .. } if protocol == Protocol::OpenAiResponses => {
            Some(json!({"text": text, "encrypted": details.is_some()}))
        }
        // The block exists only for its signature.
        Block::Reasoning { text, .. } if protocol == Protocol::Gemini && text.is_empty() => None,
        Block::Reasoning { text, .. } => Some(json!({"text": text})),
        Block::Text(_) | Block::ToolCall { .. } | Block::InvalidToolCall { .. } => None,
    };
    answer.blocks.iter().filter_map(one).collect()
}

fn signatures(answer: &AccumulatedAnswer) -> usize {
    let is_signed = |block: &&Block| matches!(block, Block::Reasoning { details: Some(_), .. });
    answer.blocks.iter().filter(is_signed).count()
}

fn calls(protocol: Protocol, answer: &AccumulatedAnswer) -> Vec<Value> {
    let one = |block: &Block| match block {
        Block::ToolCall { id, name, input } => {
            Some(json!({"id": id, "name": name, "arguments": input, "arguments_valid_json": true}))
        }
        Block::InvalidToolCall { id, name, raw, .. } => {
            Some(json!({"id": id, "name": name, "arguments": raw, "arguments_valid_json": false}))
        }
        Block::Text(_) | Block::Reasoning { .. } => None,
    };
    let mut calls: Vec<Value> = answer.blocks.iter().filter_map(one).collect();
    if protocol == Protocol::Gemini {
        // The recordings contain no ids. The decoder makes distinct ones.
        let ids: BTreeSet<String> = calls.iter_mut().map(|call| call["id"].take().to_string()).collect();
        assert_eq!(ids.len(), calls.len());
    }
    calls
}

/// The expected calls in our shape; the recordings give streamed arguments by path.
fn expected_calls(expected: &Value) -> Vec<Value> {
    let one = |call: &Value| {
        let mut arguments = call["arguments"].clone();
        if let Some(paths) = call["arguments_by_json_path"].as_object() {
            let key = |path: &String| path.trim_start_matches("$.").to_owned();
            arguments = paths.iter().map(|(path, value)| (key(path), value.clone())).collect();
        }
        let valid = &call["arguments_valid_json"];
        json!({"id": call["id"], "name": call["name"], "arguments": arguments, "arguments_valid_json": valid})
    };
    expected["tool_calls"].as_array().into_iter().flatten().map(one).collect()
}

#[test]
fn recorded_refusals_keep_the_providers_words() {
    for recording in
        recordings("json").unwrap_or_default().iter().filter(|is| !is.expected["http_error"].is_null())
    {
        let status = u16::try_from(recording.expected["http_error"].as_u64().unwrap()).unwrap();
        let error = classify::from_answer(status, std::str::from_utf8(&recording.body).unwrap());
        let message = recording.expected["error"]["message"].as_str().unwrap();
        assert!(error.message.contains(message), "{}: {error}", recording.name);
        // Only the refusal with a delay is retryable.
        let is_passing = recording.expected["error"].to_string().contains("retryDelay");
        assert_eq!((error.status, error.is_retryable()), (Some(status), is_passing), "{}", recording.name);
        assert_eq!(error.retry_after_ms.is_some(), is_passing, "{}", recording.name);
    }
}
