#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::accumulate::{AccumulatedAnswer, Block};
use crate::decode::tests::{answer, events};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Finish};
use crate::provider::Protocol;
use domain::money::Tokens;
use serde_json::{Value, json};

const START: &str =
    r#"{"type":"message_start","message":{"model":"m1","usage":{"input_tokens":9,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn end(reason: &str) -> String {
    json!({"type":"message_delta","delta":{"stop_reason":reason},"usage":{"output_tokens":5}}).to_string()
}

fn stream(data: &[&str]) -> Vec<u8> {
    let event = |data: &&str| {
        let kind = serde_json::from_str::<Value>(data).unwrap()["type"].as_str().unwrap_or("x").to_owned();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    data.iter().map(event).collect::<String>().into_bytes()
}

fn whole(blocks: &[&str], reason: &str) -> (AccumulatedAnswer, Result<(), Error>) {
    let end = end(reason);
    let data: Vec<&str> = [START].iter().chain(blocks).chain(&[end.as_str(), STOP]).copied().collect();
    answer(Protocol::Anthropic, &stream(&data), 11)
}

#[test]
fn text_comes_with_usage_and_one_end() {
    let end = end("end_turn");
    let data = [
        START,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"H"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"i"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"brand_new_event"}"#,
        end.as_str(),
        STOP,
        r#"{"type":"message_start"}"#,
    ];
    let (events, outcome) = events(Protocol::Anthropic, &stream(&data), 13);
    outcome.unwrap();
    let usage = |output| Event::Usage(Tokens { input: 9, output, ..Tokens::default() });
    let text = |delta: &str| Event::Text { index: 0, delta: delta.to_owned() };
    let want = [
        Event::Started { model: "m1".to_owned() },
        usage(1),
        Event::TextStart { index: 0 },
        text("H"),
        text("i"),
        Event::BlockEnd { index: 0, details: None },
        usage(5),
        Event::Finished { reason: Finish::Stop, raw: "end_turn".to_owned() },
    ];
    assert_eq!(events, want);
}

#[test]
fn reasoning_keeps_the_data_that_must_be_sent_back() {
    let (answer, outcome) = whole(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s1"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"d1"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"novelty","text":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
        ],
        "end_turn",
    );
    outcome.unwrap();
    let reasoning = |text: &str, signature: Option<&str>, redacted: Option<&str>| Block::Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
        details: None,
    };
    assert_eq!(answer.blocks, [reasoning("hm", Some("s1"), None), reasoning("", None, Some("d1"))]);
}

#[test]
fn tool_arguments_may_arrive_in_pieces_whole_or_not_at_all() {
    let (answer, outcome) = whole(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"p\":"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"b","name":"list","input":{}}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c","name":"glob","input":{"q":2}}}"#,
        ],
        "tool_use",
    );
    outcome.unwrap();
    let call =
        |id: &str, name: &str, input| Block::ToolCall { id: id.to_owned(), name: name.to_owned(), input };
    let want =
        [call("a", "read", json!({"p":1})), call("b", "list", json!({})), call("c", "glob", json!({"q":2}))];
    assert_eq!(answer.blocks, want);
    assert_eq!(answer.finish.unwrap().0, Finish::ToolCalls);
}

#[test]
fn reasons_to_end_are_understood() {
    for (raw, want) in [
        ("stop_sequence", Finish::Stop),
        ("pause_turn", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("refusal", Finish::ContentFilter),
        ("what_else", Finish::Other),
    ] {
        assert_eq!(whole(&[], raw).0.finish, Some((want, raw.to_owned())));
    }
}

#[test]
fn later_usage_replaces_earlier_usage_and_cache_tokens_are_separate() {
    let data = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":3,"cache_creation":{"a":2,"b":4}}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":7,"output_tokens":2}}"#,
        STOP,
    ];
    let (answer, _) = answer(Protocol::Anthropic, &stream(&data), 5);
    assert_eq!(
        answer.tokens,
        Some(Tokens { input: 7, output: 2, reasoning: 0, cache_read: 3, cache_write: 6 })
    );
}

#[test]
fn a_repeated_start_of_the_same_message_is_one_message() {
    let start = |id: &str, tokens: u64| {
        json!({"type":"message_start","message":{"id":id,"model":"m1","usage":{"input_tokens":tokens}}})
            .to_string()
    };
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}"#;
    let (first, again, other, end) = (start("a", 9), start("a", 17), start("b", 9), end("end_turn"));
    let of = |data: &[&str]| answer(Protocol::Anthropic, &stream(data), 11);
    for data in [[&first, &again, text, &end, STOP], [&first, text, &again, &end, STOP]] {
        let (got, outcome) = of(&data);
        outcome.unwrap();
        assert_eq!(got.blocks, [Block::Text("Hi".to_owned())]);
        assert_eq!(got.tokens, Some(Tokens { input: 17, output: 5, ..Tokens::default() }));
    }
    let refused = of(&[&first, text, &other]).1.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Protocol, "another message");
}

#[test]
fn content_of_the_start_is_read_once() {
    let tool = |id: &str| json!({"type":"tool_use","id":id,"name":"bash","input":{"a":1}});
    let text = json!({"type":"text","text":"Hi"});
    let start = |content: Value| {
        json!({"type":"message_start","message":{"id":"a","model":"m1","content":content}}).to_string()
    };
    let begin = |at: u64, block: &Value| {
        json!({"type":"content_block_start","index":at,"content_block":block}).to_string()
    };
    let call =
        |id: &str| Block::ToolCall { id: id.to_owned(), name: "bash".to_owned(), input: json!({"a":1}) };
    let text_block = Block::Text("Hi".to_owned());
    let both = start(json!([text, tool("c1")]));
    for (what, start, streamed, want) in [
        ("nothing follows", both.clone(), vec![], vec![text_block.clone(), call("c1")]),
        (
            "streamed again",
            both.clone(),
            vec![begin(0, &text), begin(1, &tool("c1"))],
            vec![text_block.clone(), call("c1")],
        ),
        (
            "the last is streamed again",
            both.clone(),
            vec![begin(1, &tool("c1"))],
            vec![text_block.clone(), call("c1")],
        ),
        ("continued", both, vec![begin(2, &tool("c2"))], vec![text_block.clone(), call("c1"), call("c2")]),
        ("counted anew", start(json!([tool("c1")])), vec![begin(0, &text)], vec![call("c1"), text_block]),
        ("nothing", start(json!(null)), vec![], vec![]),
    ] {
        let end = end("tool_use");
        let mut data = vec![start.as_str()];
        data.extend(streamed.iter().map(String::as_str));
        data.extend([end.as_str(), STOP]);
        let (got, outcome) = answer(Protocol::Anthropic, &stream(&data), 11);
        outcome.unwrap();
        assert_eq!(got.blocks, want, "{what}");
    }
}

#[test]
fn a_broken_stream_fails_with_its_cause() {
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let foreign = r#"{"error":{"message":"prompt is too long"}}"#;
    for (data, kind) in [
        (vec![START, START], ErrorKind::Protocol),
        (vec![text], ErrorKind::Protocol),
        (vec![START, text, text], ErrorKind::Protocol),
        (vec![START, r#"{"type":"content_block_stop","index":4}"#], ErrorKind::Protocol),
        (vec![START, r#"{"type":"content_block_delta","index":4,"delta":{}}"#], ErrorKind::Protocol),
        (
            vec![
                START,
                text,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"x"}}"#,
            ],
            ErrorKind::Protocol,
        ),
        (vec![START, STOP], ErrorKind::Truncated),
        (vec![START, text], ErrorKind::Truncated),
        (vec![overloaded], ErrorKind::Overloaded),
        (vec![START, overloaded], ErrorKind::Overloaded),
        (vec![START, foreign], ErrorKind::Overflow),
    ] {
        let (_, outcome) = answer(Protocol::Anthropic, &stream(&data), 17);
        assert_eq!(outcome.unwrap_err().kind, kind, "{data:?}");
    }
}

#[test]
fn blocks_are_bounded() {
    let block = r#"{"type":"content_block_start","index":IND,"content_block":{"type":"novelty"}}"#;
    let blocks: Vec<String> =
        (0..=domain::limits::MODEL_BLOCKS_MAX).map(|at| block.replace("IND", &at.to_string())).collect();
    let data: Vec<&str> = std::iter::once(START).chain(blocks.iter().map(String::as_str)).collect();
    let bytes = stream(&data);
    let (_, outcome) = answer(Protocol::Anthropic, &bytes, bytes.len());
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::TooLarge);
}
