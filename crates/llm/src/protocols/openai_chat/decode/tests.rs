#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::accumulate::{AccumulatedAnswer, Block, Invalid};
use crate::decode::tests::{answer, events};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Finish};
use crate::provider::Protocol;
use domain::money::Tokens;
use serde_json::{Value, json};

fn chunk(delta: Value) -> String {
    json!({"id":"r1","model":"m1","choices":[{"index":0,"delta":delta,"finish_reason":null}]}).to_string()
}

fn end(reason: &str) -> String {
    json!({"id":"r1","model":"m1","choices":[{"index":0,"delta":{},"finish_reason":reason}]}).to_string()
}

fn stream(data: &[String]) -> Vec<u8> {
    data.iter().map(|data| format!("data: {data}\n\n")).collect::<String>().into_bytes()
}

fn decode(data: &[String]) -> (AccumulatedAnswer, Result<(), Error>) {
    answer(Protocol::OpenAiChat, &stream(data), 9)
}

/// The blocks of a complete answer made of `deltas`.
fn blocks(deltas: &[Value], reason: &str) -> Vec<Block> {
    let mut data: Vec<String> = deltas.iter().cloned().map(chunk).collect();
    data.extend([end(reason), "[DONE]".to_owned()]);
    let (answer, outcome) = decode(&data);
    outcome.unwrap();
    answer.blocks
}

fn text(text: &str) -> Block {
    Block::Text(text.to_owned())
}

fn reasoning(text: &str, details: Option<Value>) -> Block {
    Block::Reasoning { text: text.to_owned(), signature: None, redacted: None, details }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), input }
}

#[test]
fn text_comes_with_usage_and_one_end() {
    let usage = json!({"choices":[],"usage":{
        "prompt_tokens":10,"completion_tokens":7,
        "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":1},
        "completion_tokens_details":{"reasoning_tokens":2}}});
    let filter = json!({"id":"","model":"","choices":[],"prompt_filter_results":[]});
    let null_usage = json!({"id":"r1","model":"m1","choices":[{"delta":{"content":"Hi"}}],"usage":null});
    let data = [
        filter.to_string(),
        null_usage.to_string(),
        end("stop"),
        usage.to_string(),
        "[DONE]".to_owned(),
        "x".to_owned(),
    ];
    let (events, outcome) = events(Protocol::OpenAiChat, &stream(&data), 13);
    outcome.unwrap();
    let want = [
        Event::Started { model: "m1".to_owned() },
        Event::TextStart { index: 0 },
        Event::Text { index: 0, delta: "Hi".to_owned() },
        Event::Usage(Tokens { input: 5, output: 5, reasoning: 2, cache_read: 4, cache_write: 1 }),
        Event::BlockEnd { index: 0, details: None },
        Event::Finished { reason: Finish::Stop, raw: "stop".to_owned() },
    ];
    assert_eq!(events, want);
}

#[test]
fn tool_calls_are_read_in_every_shape() {
    let piece = |value: Value| json!({"tool_calls": value});
    for (deltas, want) in [
        (
            vec![
                piece(json!([{"index":0,"id":"a","function":{"name":"read","arguments":""}}])),
                piece(json!([{"index":1,"id":"b","function":{"name":"list","arguments":"{"}}])),
                piece(
                    json!([{"index":0,"function":{"arguments":"{\"p\":1}"}}, {"index":1,"function":{"arguments":"}"}}]),
                ),
            ],
            vec![call("a", "read", json!({"p":1})), call("b", "list", json!({}))],
        ),
        (
            vec![piece(json!([
                {"function":{"name":"read","arguments":"{}"},"id":"a"},
                {"function":{"name":"list","arguments":{"x":2}},"id":"b"},
            ]))],
            vec![call("a", "read", json!({})), call("b", "list", json!({"x":2}))],
        ),
        (
            vec![
                piece(json!([{"function":{"name":"read","arguments":"{\"p\""}}])),
                piece(json!([{"function":{"arguments":":1}"}}])),
            ],
            vec![call("call_r1_0", "read", json!({"p":1}))],
        ),
        (
            vec![
                piece(json!([{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}])),
                piece(json!([{"index":0,"id":"b","function":{"name":"read","arguments":"{}"}}])),
                piece(json!([{"index":1,"id":"a","function":{"name":"read","arguments":"{}"}}])),
            ],
            vec![call("a", "read", json!({})), call("b", "read", json!({})), call("a_2", "read", json!({}))],
        ),
        (
            vec![
                piece(json!([{"index":0,"id":"a","function":{"arguments":"{\"p\":"}}])),
                piece(json!([{"index":0,"function":{"name":"read","arguments":"1}"}}])),
            ],
            vec![call("a", "read", json!({"p":1}))],
        ),
    ] {
        assert_eq!(blocks(&deltas, "tool_calls"), want, "{deltas:?}");
    }
}

#[test]
fn a_cut_or_nameless_call_never_runs() {
    let delta = json!({"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]});
    for reason in ["length", "content_filter"] {
        let got = blocks(std::slice::from_ref(&delta), reason);
        assert!(matches!(got[..], [Block::InvalidToolCall { reason: Invalid::Incomplete, .. }]), "{got:?}");
    }
    let got =
        blocks(&[json!({"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]})], "tool_calls");
    assert!(matches!(got[..], [Block::InvalidToolCall { reason: Invalid::Nameless, .. }]), "{got:?}");
}

#[test]
fn reasoning_is_read_from_many_fields_and_signed_details_are_joined() {
    for field in ["reasoning_content", "reasoning"] {
        let deltas = [json!({field:"hm"}), json!({field:"!"}), json!({"content":"yes"})];
        assert_eq!(blocks(&deltas, "stop"), [reasoning("hm!", None), text("yes")]);
    }
    let both = json!({"reasoning_content":"hm","reasoning":"hm"});
    assert_eq!(blocks(&[both], "stop"), [reasoning("hm", None)]);
    let piece = |extra: Value| {
        let mut piece = json!({"type":"reasoning.text","index":0,"format":"f"});
        piece.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"content":"","reasoning_details":[piece]})
    };
    let deltas = [
        piece(json!({"text":"a"})),
        piece(json!({"text":"b","signature":null})),
        piece(json!({"signature":"sig"})),
        json!({"content":"yes"}),
        json!({"reasoning_details":[{"type":"reasoning.encrypted","data":"zz"}]}),
        json!({"content":"!"}),
    ];
    let details = json!([{"type":"reasoning.text","index":0,"format":"f","text":"ab","signature":"sig"}]);
    let late = json!([{"type":"reasoning.encrypted","data":"zz"}]);
    assert_eq!(
        blocks(&deltas, "stop"),
        [reasoning("ab", Some(details)), text("yes!"), reasoning("", Some(late))]
    );
    let mistral = json!({"content":[
        {"type":"thinking","thinking":[{"type":"text","text":"hm"}]}, {"type":"text","text":"yes"}]});
    assert_eq!(blocks(&[mistral], "stop"), [reasoning("hm", None), text("yes")]);
}

#[test]
fn a_refusal_is_text() {
    assert_eq!(blocks(&[json!({"refusal":"No"}), json!({"refusal":"."})], "stop"), [text("No.")]);
}

#[test]
fn usage_is_found_in_each_vendors_place() {
    let numbers = json!({"prompt_tokens":900,"completion_tokens":2,"prompt_cache_hit_tokens":896});
    let want = Some(Tokens { input: 4, output: 2, cache_read: 896, ..Tokens::default() });
    for extra in [
        json!({"choices":[{"delta":{},"finish_reason":"stop"}],"usage":numbers}),
        json!({"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":numbers}}),
        json!({"choices":[{"delta":{},"finish_reason":"stop","usage":numbers}]}),
    ] {
        assert_eq!(decode(&[extra.to_string()]).0.tokens, want, "{extra}");
    }
    let moonshot = json!({"prompt_tokens":900,"completion_tokens":2,"cached_tokens":896});
    let last = json!({"choices":[{"delta":{},"finish_reason":"stop"}],"usage":moonshot});
    assert_eq!(decode(&[last.to_string()]).0.tokens, want, "{last}");
}

#[test]
fn the_end_mark_may_be_missing_but_the_reason_may_not() {
    let hi = chunk(json!({"content":"Hi"}));
    assert!(decode(&[hi.clone(), end("stop")]).1.is_ok());
    for data in [vec![hi.clone()], vec![hi, "[DONE]".to_owned()]] {
        assert_eq!(decode(&data).1.unwrap_err().kind, ErrorKind::Truncated);
    }
}

#[test]
fn an_error_inside_the_stream_ends_it() {
    let hi = chunk(json!({"content":"Hi"}));
    for (last, kind) in [
        (json!({"error":{"code":400,"message":"maximum context length is 8"}}), ErrorKind::Overflow),
        (json!({"error":{"code":"rate_limit_exceeded","message":"slow"}}), ErrorKind::RateLimited),
        (json!({"error":"it broke"}), ErrorKind::Server),
        (json!({"object":"error","message":"bad","code":400}), ErrorKind::Invalid),
        (
            json!({"choices":[{"finish_reason":"error","error":{"code":502,"message":"up"}}]}),
            ErrorKind::Server,
        ),
        (
            json!({"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}),
            ErrorKind::Overloaded,
        ),
        (json!({"choices":[{"delta":{},"finish_reason":"network_error"}]}), ErrorKind::Overloaded),
        (json!([1]), ErrorKind::Protocol),
    ] {
        let (answer, outcome) = decode(&[hi.clone(), end("length"), last.to_string(), "[DONE]".to_owned()]);
        assert_eq!(outcome.unwrap_err().kind, kind, "{last}");
        assert_eq!((answer.blocks, answer.finish), (vec![text("Hi")], None));
    }
    let foreign = [json!({"type":"message-start"}).to_string(), "[DONE]".to_owned()];
    assert_eq!(decode(&foreign).1.unwrap_err().kind, ErrorKind::Protocol);
}
