#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::accumulate::{AccumulatedAnswer, Block, Invalid};
use crate::decode::tests::{answer, events};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Finish};
use crate::provider::Protocol;
use domain::money::Tokens;
use serde_json::{Value, json};

fn stream(data: &[Value]) -> Vec<u8> {
    data.iter().map(|value| format!("data: {value}\r\n\r\n")).collect::<String>().into_bytes()
}

fn decode(data: &[Value]) -> (AccumulatedAnswer, Result<(), Error>) {
    answer(Protocol::Gemini, &stream(data), 9)
}

fn parts(parts: Value) -> Value {
    json!({"candidates":[{"content":{"role":"model","parts":parts}}],"modelVersion":"m1","responseId":"r1"})
}

fn end(reason: &str) -> Value {
    json!({"candidates":[{"content":{},"finishReason":reason}]})
}

fn signed(text: &str, of: &str, signature: &str) -> Block {
    let details = json!([{"type":"thought_signature","of":of,"signature":signature}]);
    Block::Reasoning { text: text.to_owned(), signature: None, redacted: None, details: Some(details) }
}

fn call(id: &str, input: Value) -> Block {
    Block::ToolCall { id: id.to_owned(), name: "bash".to_owned(), input }
}

fn text(text: &str) -> Block {
    Block::Text(text.to_owned())
}

/// The blocks of a complete answer made of `chunks`, each a list of parts.
fn blocks(chunks: &[Value]) -> Vec<Block> {
    let mut data: Vec<Value> = chunks.iter().cloned().map(parts).collect();
    data.push(end("STOP"));
    let (answer, outcome) = decode(&data);
    outcome.unwrap();
    answer.blocks
}

#[test]
fn an_answer_ends_with_its_connection() {
    let mut last = parts(json!([{"text":"","thoughtSignature":"s"}]));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] = json!({"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2});
    let data = [
        parts(json!([{"text":"hm","thought":true}])),
        parts(json!([{"text":"Hi"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}])),
        json!({"candidates":[{"content":{"role":"model"}}],"usageMetadata":{"trafficType":"ON_DEMAND"}}),
        last,
        parts(json!([{"text":"!"}])),
    ];
    let (events, outcome) = events(Protocol::Gemini, &stream(&data), 13);
    outcome.unwrap();
    let details = json!([{"type":"thought_signature","of":"text","signature":"s"}]);
    let end = |index, details| Event::ReasoningEnd { index, signature: None, redacted: None, details };
    let want = [
        Event::Started { model: "m1".to_owned() },
        Event::ReasoningStart { index: 0 },
        Event::Reasoning { index: 0, delta: "hm".to_owned() },
        end(0, None),
        Event::TextStart { index: 1 },
        Event::Text { index: 1, delta: "Hi".to_owned() },
        Event::Usage(Tokens { input: 6, output: 5, reasoning: 2, cache_read: 4, cache_write: 0 }),
        Event::Text { index: 1, delta: "!".to_owned() },
        Event::BlockEnd { index: 1, details: None },
        Event::ReasoningStart { index: 2 },
        end(2, Some(details)),
        Event::Finished { reason: Finish::Stop, raw: "STOP".to_owned() },
    ];
    assert_eq!(events, want);
}

#[test]
fn signatures_come_before_their_calls() {
    let call_part = |args: Value| json!({"functionCall":{"name":"bash","args":args}});
    let mut first = call_part(json!({"a":1}));
    first["thoughtSignature"] = json!("s");
    let got = blocks(&[json!([first.clone(), call_part(json!({}))])]);
    assert_eq!(
        got,
        [signed("", "call", "s"), call("call_r1_0", json!({"a":1})), call("call_r1_1", json!({}))]
    );
    let got = blocks(&[json!([{"text":"hm","thought":true}]), json!([first.clone()])]);
    assert_eq!(
        got,
        [signed("hm", "call", "s"), call("call_r1_0", json!({"a":1}))],
        "with the thoughts before it"
    );
    let got = blocks(&[
        json!([{"text":"hm","thought":true,"thoughtSignature":"t"}]),
        json!([{"text":"Hi"}, first]),
    ]);
    let want = [
        signed("hm", "thought", "t"),
        text("Hi"),
        signed("", "call", "s"),
        call("call_r1_0", json!({"a":1})),
    ];
    assert_eq!(got, want);
    let named = json!([{"functionCall":{"id":"c9","name":"bash"}}]);
    assert_eq!(blocks(&[named]), [call("c9", json!({}))]);
}

#[test]
fn calls_may_arrive_in_pieces() {
    let piece = |value: Value| json!([{"functionCall": value}]);
    let begin = piece(json!({"name":"bash","willContinue":true}));
    let more = piece(json!({"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}));
    let last = piece(json!({}));
    let want = call("call_r1_0", json!({"a":"x"}));
    assert_eq!(blocks(&[begin.clone(), more.clone(), last.clone()]), std::slice::from_ref(&want));
    let second = call("call_r1_1", json!({"a":"x"}));
    let both = [begin.clone(), more.clone(), last.clone(), begin.clone(), more.clone(), last];
    assert_eq!(blocks(&both), [want, second]);
    let got = blocks(&[begin, more]);
    assert!(
        matches!(&got[..], [Block::InvalidToolCall { reason: Invalid::NotAnObject, .. }]),
        "no end, no run: {got:?}"
    );
}

#[test]
fn each_finish_reason_is_recognized() {
    for (raw, want) in [
        ("STOP", Finish::Stop),
        ("MAX_TOKENS", Finish::Length),
        ("SAFETY", Finish::ContentFilter),
        ("PROHIBITED_CONTENT", Finish::ContentFilter),
        ("MODEL_ARMOR", Finish::ContentFilter),
        ("OTHER", Finish::Other),
    ] {
        let (got, outcome) = decode(&[parts(json!([{"text":"Hi"}])), end(raw)]);
        outcome.unwrap();
        assert_eq!(got.finish, Some((want, raw.to_owned())));
    }
    let (got, _) = decode(&[parts(json!([{"functionCall":{"name":"bash","args":{}}}])), end("STOP")]);
    assert_eq!(got.finish.unwrap().0, Finish::ToolCalls);
    let (got, _) = decode(&[parts(json!([{"functionCall":{"name":"bash","args":{}}}])), end("MAX_TOKENS")]);
    assert!(matches!(got.blocks[..], [Block::InvalidToolCall { reason: Invalid::Incomplete, .. }]));
}

#[test]
fn an_invalid_answer_fails_with_its_cause() {
    for (last, kind, retryable) in [
        (json!({"promptFeedback":{"blockReason":"SAFETY"}}), ErrorKind::ContentFilter, false),
        (
            json!({"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}),
            ErrorKind::RateLimited,
            true,
        ),
        (json!({"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}), ErrorKind::Overloaded, true),
        (end("MALFORMED_FUNCTION_CALL"), ErrorKind::Invalid, true),
        (end("MALFORMED_RESPONSE"), ErrorKind::Invalid, true),
        (parts(json!([{"text":"more"}])), ErrorKind::Truncated, true),
        (
            parts(json!([{"functionCall":{"name":"b","partialArgs":[{"jsonPath":"x"}]}}])),
            ErrorKind::Protocol,
            false,
        ),
    ] {
        let (got, outcome) = decode(&[parts(json!([{"text":"Hi"}])), last.clone()]);
        let error = outcome.unwrap_err();
        assert_eq!((error.kind, error.is_retryable()), (kind, retryable), "{last}: {error}");
        assert_eq!(got.finish, None);
    }
    let usage = json!({"promptTokenCount":7});
    let (got, _) = decode(&[json!({"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":usage})]);
    assert_eq!(got.tokens, Some(Tokens { input: 7, ..Tokens::default() }), "a refused prompt has a cost");
    assert_eq!(decode(&[json!({"choices":[]})]).1.unwrap_err().kind, ErrorKind::Protocol);
    assert_eq!(decode(&[json!({"candidates":[]})]).1.unwrap_err().kind, ErrorKind::Truncated);
}
