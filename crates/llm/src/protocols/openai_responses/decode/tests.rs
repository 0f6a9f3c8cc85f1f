#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::accumulate::{AccumulatedAnswer, Block, Invalid};
use crate::decode::tests::{answer, events};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Finish};
use crate::provider::Protocol;
use domain::money::Tokens;
use serde_json::{Value, json};

fn stream(data: &[Value]) -> Vec<u8> {
    let line =
        |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default());
    data.iter().map(line).collect::<String>().into_bytes()
}

fn decode(data: &[Value]) -> (AccumulatedAnswer, Result<(), Error>) {
    answer(Protocol::OpenAiResponses, &stream(data), 9)
}

fn created() -> Value {
    json!({"type":"response.created","response":{"id":"r1","model":"m1"}})
}

fn added(at: u64, item: Value) -> Value {
    json!({"type":"response.output_item.added","output_index":at,"item":item})
}

fn done(at: u64, item: Value) -> Value {
    json!({"type":"response.output_item.done","output_index":at,"item":item})
}

fn delta(kind: &str, at: u64, text: &str) -> Value {
    json!({"type":format!("response.{kind}.delta"),"output_index":at,"item_id":"rotates","delta":text})
}

fn completed() -> Value {
    json!({"type":"response.completed","response":{"status":"completed"}})
}

fn call(arguments: &str) -> Value {
    json!({"type":"function_call","id":"fc","call_id":"c1","name":"bash","arguments":arguments})
}

#[test]
fn an_answer_arrives_item_by_item() {
    let usage = json!({"input_tokens":10,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":1},
        "output_tokens":7,"output_tokens_details":{"reasoning_tokens":2}});
    let data = [
        json!({"type":"response.queued","response":{"model":"m1"}}),
        created(),
        added(0, json!({"type":"reasoning","summary":[]})),
        json!({"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}),
        delta("reasoning_summary_text", 0, "a"),
        json!({"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}),
        delta("reasoning_summary_text", 0, "b"),
        done(
            0,
            json!({"type":"reasoning","id":"rs_1","encrypted_content":"enc","summary":[{"type":"summary_text","text":"a"}]}),
        ),
        added(1, json!({"type":"message"})),
        delta("output_text", 1, "Hi"),
        added(2, json!({"type":"web_search_call"})),
        done(2, json!({"type":"web_search_call"})),
        done(
            1,
            json!({"type":"message","id":"msg_1","phase":"commentary","status":"completed","content":[{"type":"output_text","text":"Hi"}]}),
        ),
        added(3, call("")),
        delta("function_call_arguments", 3, "{\"a\":"),
        delta("function_call_arguments", 3, "1}"),
        done(3, call("{\"a\":1}")),
        json!({"type":"response.completed","response":{"usage":usage}}),
        json!({"type":"response.output_text.delta","output_index":1,"delta":"late"}),
    ];
    let (events, outcome) = events(Protocol::OpenAiResponses, &stream(&data), 13);
    outcome.unwrap();
    let details = json!([{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"enc"}]);
    let identity = json!([{"type":"message","id":"msg_1","phase":"commentary","status":"completed"}]);
    let text = |text: &str| text.to_owned();
    let want = [
        Event::Started { model: text("m1") },
        Event::ReasoningStart { index: 0 },
        Event::Reasoning { index: 0, delta: text("a") },
        Event::Reasoning { index: 0, delta: text("\n\nb") },
        Event::ReasoningEnd { index: 0, signature: None, redacted: None, details: Some(details) },
        Event::TextStart { index: 1 },
        Event::Text { index: 1, delta: text("Hi") },
        Event::BlockEnd { index: 1, details: Some(identity) },
        Event::ToolStart { index: 2, id: text("c1"), name: text("bash") },
        Event::ToolArguments { index: 2, delta: text("{\"a\":") },
        Event::ToolArguments { index: 2, delta: text("1}") },
        Event::BlockEnd { index: 2, details: None },
        Event::Usage(Tokens { input: 5, output: 5, reasoning: 2, cache_read: 4, cache_write: 1 }),
        Event::Finished { reason: Finish::ToolCalls, raw: text("completed") },
    ];
    assert_eq!(events, want);
}

#[test]
fn content_that_was_not_streamed_is_taken_from_the_whole_item() {
    let whole_text = json!({"type":"message","content":[{"type":"output_text","text":"Hi"},{"type":"refusal","refusal":"!"}]});
    let thought = json!({"type":"reasoning","summary":[{"text":"a"},{"text":"b"}]});
    let want = [
        Block::Reasoning { text: "a\n\nb".to_owned(), signature: None, redacted: None, details: None },
        Block::Text("Hi!".to_owned()),
        Block::ToolCall { id: "c1".to_owned(), name: "bash".to_owned(), input: json!({"a":1}) },
    ];
    let items = [thought, whole_text, call("{\"a\":1}")];
    let only_done = [
        created(),
        done(0, items[0].clone()),
        done(1, items[1].clone()),
        done(2, items[2].clone()),
        completed(),
    ];
    let only_response = [json!({"type":"response.completed","response":{"model":"m","output":items}})];
    // Pieces of a call that was never announced.
    let unannounced = [
        created(),
        done(0, items[0].clone()),
        done(1, items[1].clone()),
        delta("function_call_arguments", 2, "{\"a\""),
        done(2, items[2].clone()),
        completed(),
    ];
    for data in [&only_done[..], &only_response, &unannounced] {
        let (got, outcome) = decode(data);
        outcome.unwrap();
        assert_eq!(got.blocks, want);
        assert_eq!(got.finish.unwrap().0, Finish::ToolCalls);
    }
}

#[test]
fn encrypted_reasoning_without_text_is_kept() {
    let item = json!({"type":"reasoning","encrypted_content":"enc","summary":[]});
    let (got, _) = decode(&[created(), added(0, item.clone()), done(0, item), completed()]);
    let details = json!([{"type":"reasoning","summary":[],"encrypted_content":"enc"}]);
    let want =
        Block::Reasoning { text: String::new(), signature: None, redacted: None, details: Some(details) };
    assert_eq!(got.blocks, [want]);
    let item = json!({"type":"reasoning","encrypted_content":null,"summary":[]});
    let (got, _) = decode(&[created(), added(0, item.clone()), done(0, item), completed()]);
    assert_eq!(got.blocks, [], "nothing to show and nothing to send back");
}

fn ended(output: Value) -> Value {
    json!({"type":"response.completed","response":{"status":"completed","output":output}})
}

fn message(id: &str, text: &str) -> Value {
    json!({"type":"message","id":id,"content":[{"type":"output_text","text":text}]})
}

fn call_of(id: &str, call_id: &str, command: &str) -> Value {
    let arguments = json!({"command":command}).to_string();
    json!({"type":"function_call","id":id,"call_id":call_id,"name":"bash","arguments":arguments})
}

/// The texts, and the commands of the calls with their ids.
fn shape(data: &[Value]) -> Vec<String> {
    let (got, outcome) = decode(data);
    outcome.unwrap();
    let one = |block: &Block| match block {
        Block::Text(text) => text.clone(),
        Block::ToolCall { id, input, .. } => format!("{id}: {}", input["command"].as_str().unwrap()),
        other => panic!("{other:?}"),
    };
    got.blocks.iter().map(one).collect()
}

#[test]
fn the_list_at_the_end_is_matched_by_identity_and_never_by_position() {
    let begun = |at: u64, item: &Value| {
        let mut empty = item.clone();
        empty["arguments"] = json!("");
        added(at, empty)
    };
    let arguments =
        |at: u64, item: &Value| delta("function_call_arguments", at, item["arguments"].as_str().unwrap());
    let (one, two) = (call_of("fc_1", "c1", "one"), call_of("fc_2", "c2", "two"));
    let renamed = |item: &Value, id: &str| {
        let mut item = item.clone();
        item["id"] = json!(id);
        item
    };
    let streamed = [begun(3, &one), arguments(3, &one), done(3, one.clone())];
    let texts = [
        added(0, message("msg_a", "")),
        delta("output_text", 0, "Got it"),
        added(2, message("msg_c", "")),
        delta("output_text", 2, "Here"),
    ];
    let search = json!({"type":"web_search_call","id":"ws"});
    for (what, pieces, output, want) in [
        ("an item that only the list has", &streamed[..], json!([search, one]), &["c1: one"][..]),
        ("a gap", &streamed, json!([one]), &["c1: one"]),
        ("another id at the end", &streamed, json!([renamed(&one, "fc_9")]), &["c1: one"]),
        ("a call that only the list has", &streamed, json!([two, one]), &["c1: one", "c2: two"]),
        ("the same call twice in the list", &streamed, json!([one, renamed(&one, "fc_9")]), &["c1: one"]),
        ("an open call", &streamed[..2], json!([two, one]), &["c1: one", "c2: two"]),
        (
            "texts with a gap",
            &texts,
            json!([message("msg_a", "Got it"), message("msg_c", "Here it is")]),
            &["Got it", "Here"],
        ),
        (
            "texts with other ids at the end",
            &texts,
            json!([message("x", "Got it"), message("y", "Here")]),
            &["Got it", "Here"],
        ),
        (
            "texts without ids",
            &texts,
            json!([message("", "Got it"), message("", "Here it is")]),
            &["Got it", "Here"],
        ),
        ("a text that only the list has", &texts, json!([message("msg_b", "!")]), &["Got it", "Here", "!"]),
        ("nothing", &[], json!([message("msg_a", "Hi"), one, two]), &["Hi", "c1: one", "c2: two"]),
    ] {
        let data: Vec<Value> =
            std::iter::once(created()).chain(pieces.iter().cloned()).chain([ended(output)]).collect();
        assert_eq!(shape(&data), want, "{what}");
    }
}

#[test]
fn two_calls_never_share_an_id_and_one_call_never_counts_twice() {
    let (one, two) = (call_of("fc_1", "c1", "one"), call_of("fc_2", "c1", "two"));
    let again = |at: u64, item: &Value| [added(at, item.clone()), done(at, item.clone())];
    for (what, pieces, want) in [
        ("streamed twice", [again(0, &one), again(1, &one)].concat(), &["c1: one"][..]),
        ("done twice", vec![done(0, one.clone()), done(1, one.clone())], &["c1: one"]),
        (
            "interleaved",
            vec![added(0, one.clone()), added(1, one.clone()), done(1, one.clone()), done(0, one.clone())],
            &["c1: one"],
        ),
        ("two calls with one id", [again(0, &one), again(1, &two)].concat(), &["c1: one", "c1_1: two"]),
        ("another position at its end", vec![added(0, one.clone()), done(1, one.clone())], &["c1: one"]),
        (
            "always the first position",
            [again(0, &one), again(0, &call_of("fc_2", "c2", "two"))].concat(),
            &["c1: one", "c2: two"],
        ),
    ] {
        let data: Vec<Value> = std::iter::once(created()).chain(pieces).chain([completed()]).collect();
        assert_eq!(shape(&data), want, "{what}");
    }
    let unplaced = |mut event: Value| {
        event.as_object_mut().unwrap().remove("output_index");
        event
    };
    let other = call_of("fc_2", "c2", "two");
    let data = [
        created(),
        added(0, one.clone()),
        done(0, one.clone()),
        added(0, other.clone()),
        done(0, other),
        completed(),
    ];
    assert_eq!(shape(&data.map(unplaced)), ["c1: one", "c2: two"], "a server without positions");
}

#[test]
fn ids_that_a_request_must_not_contain_are_left_out() {
    let foreign = "msg_".to_owned() + &"x".repeat(80);
    for (id, want) in [("msg_1", true), ("rotated", false), ("", false), (foreign.as_str(), false)] {
        let data = [created(), done(0, message(id, "Hi")), completed()];
        let (events, _) = events(Protocol::OpenAiResponses, &stream(&data), 100);
        let has_details =
            events.iter().any(|event| matches!(event, Event::BlockEnd { details: Some(_), .. }));
        assert_eq!(has_details, want, "{id}");
    }
}

#[test]
fn no_call_of_a_cut_response_runs() {
    for (reason, finish) in [("max_output_tokens", Finish::Length), ("content_filter", Finish::ContentFilter)]
    {
        let end = json!({"type":"response.incomplete","response":{"incomplete_details":{"reason":reason}}});
        let (got, outcome) =
            decode(&[created(), added(0, call("")), delta("function_call_arguments", 0, "{}"), end]);
        outcome.unwrap();
        assert_eq!(got.finish, Some((finish, reason.to_owned())));
        assert!(matches!(got.blocks[..], [Block::InvalidToolCall { reason: Invalid::Incomplete, .. }]));
    }
}

#[test]
fn a_failed_response_and_a_missing_end_give_different_errors() {
    let failed = |error: Value| json!({"type":"response.failed","response":{"error":error,"usage":{"input_tokens":3}}});
    for (last, kind, retryable) in [
        (failed(json!({"code":"server_error","message":"m"})), ErrorKind::Server, true),
        (failed(json!({"code":"rate_limit_exceeded","message":"m"})), ErrorKind::RateLimited, true),
        (failed(json!({"code":"context_length_exceeded","message":"m"})), ErrorKind::Overflow, false),
        (failed(Value::Null), ErrorKind::Server, true),
        (json!({"type":"error","code":"insufficient_quota","message":"m"}), ErrorKind::Quota, false),
        (
            json!({"type":"error","error":{"type":"overloaded_error","message":"m"}}),
            ErrorKind::Overloaded,
            true,
        ),
        (json!({"error":{"code":429,"message":"slow"}}), ErrorKind::RateLimited, true),
        (json!({"type":"keepalive"}), ErrorKind::Truncated, true),
    ] {
        let (got, outcome) = decode(&[created(), delta("output_text", 0, "Hi"), last.clone()]);
        let error = outcome.unwrap_err();
        assert_eq!((error.kind, error.is_retryable()), (kind, retryable), "{last}: {error}");
        assert_eq!((got.blocks, got.finish), (vec![Block::Text("Hi".to_owned())], None));
    }
    let foreign = [json!({"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]})];
    assert_eq!(decode(&foreign).1.unwrap_err().kind, ErrorKind::Protocol);
}
