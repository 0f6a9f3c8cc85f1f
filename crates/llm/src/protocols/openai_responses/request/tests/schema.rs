//! Each item of a conversation against the schema of the API, as far as our requests use it. Written by hand from
//! <https://platform.openai.com/docs/api-reference/responses/create>.

use super::{body, call, openai, result};
use crate::accumulate::{Accumulator, Block};
use crate::catalogue;
use crate::decode::tests::events;
use crate::event::Event;
use crate::provider::Protocol;
use crate::request::tests::{media, png};
use crate::request::{AssistantPart, Message, Request, Source, ToolResult, UserPart};
use serde_json::{Value, json};

/// An object of the schema.
struct Shape {
    what: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

impl Shape {
    fn check(&self, value: &Value) {
        let fields = value.as_object().unwrap_or_else(|| panic!("{}: {value}", self.what));
        for key in self.required {
            assert!(fields.contains_key(*key), "{} without {key}: {value}", self.what);
        }
        for (key, field) in fields {
            let is_known = [self.required, self.optional].concat().contains(&key.as_str());
            assert!(is_known && !field.is_null(), "{}: {key} in {value}", self.what);
        }
    }
}

fn one_of(value: &Value, words: &[&str]) {
    assert!(value.as_str().is_some_and(|word| words.contains(&word)), "{value} of {words:?}");
}

fn id(value: &Value, prefix: &str) {
    let id = value.as_str().unwrap_or_default();
    assert!(id.starts_with(prefix) && (1..=64).contains(&id.len()), "{value}: {prefix}");
}

/// Checks an input item; returns its kind.
fn item(value: &Value) -> &'static str {
    let shape = |what, required, optional| Shape { what, required, optional };
    match (value["type"].as_str().unwrap(), value["role"].as_str(), value["content"].is_string()) {
        ("message", Some("assistant"), true) => {
            shape("short text", &["type", "role", "content"], &[]).check(value);
            "short text"
        }
        ("message", Some("assistant"), false) => {
            let required = &["type", "role", "id", "status", "content"];
            shape("text", required, &["phase"]).check(value);
            id(&value["id"], "msg_");
            one_of(&value["status"], &["in_progress", "completed", "incomplete"]);
            for part in value["content"].as_array().unwrap() {
                shape("output text", &["type", "text", "annotations"], &["logprobs"]).check(part);
                one_of(&part["type"], &["output_text"]);
                assert!(part["annotations"].is_array(), "{part}");
            }
            "text"
        }
        ("message", Some("user"), _) => {
            shape("prompt", &["type", "role", "content"], &[]).check(value);
            value["content"].as_array().unwrap().iter().for_each(input_part);
            "prompt"
        }
        ("reasoning", None, _) => {
            shape("reasoning", &["type", "id", "summary"], &["encrypted_content"]).check(value);
            id(&value["id"], "rs_");
            for part in value["summary"].as_array().unwrap() {
                shape("summary", &["type", "text"], &[]).check(part);
                one_of(&part["type"], &["summary_text"]);
            }
            "reasoning"
        }
        ("function_call", None, _) => {
            shape("call", &["type", "call_id", "name", "arguments"], &[]).check(value);
            id(&value["call_id"], "");
            let arguments: Value = serde_json::from_str(value["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object(), "{value}");
            "call"
        }
        ("function_call_output", None, _) => {
            shape("output", &["type", "call_id", "output"], &[]).check(value);
            match &value["output"] {
                Value::String(_) => {}
                parts => parts.as_array().unwrap().iter().for_each(input_part),
            }
            "output"
        }
        _ => panic!("{value}"),
    }
}

fn input_part(part: &Value) {
    let (required, optional): (&[&str], &[&str]) = match part["type"].as_str().unwrap() {
        "input_text" => (&["type", "text"], &[]),
        "input_image" => (&["type", "image_url", "detail"], &[]),
        "input_file" => (&["type"], &["filename", "file_data", "file_url"]),
        other => panic!("{other}"),
    };
    Shape { what: "part", required, optional: &[] }.check(&{
        let mut part = part.clone();
        optional.iter().for_each(|key| drop(part.as_object_mut().unwrap().remove(*key)));
        part
    });
}

/// An answer of the API, as the next request sends it back.
fn answer(output: &[Value]) -> Message {
    let done = |(at, item)| json!({"type":"response.output_item.done","output_index":at,"item":item});
    let mut data = vec![json!({"type":"response.created","response":{"model":"m"}})];
    data.extend(output.iter().enumerate().map(done));
    data.push(json!({"type":"response.completed","response":{"status":"completed","output":output}}));
    let bytes: String = data.iter().map(|value| format!("data: {value}\n\n")).collect();
    let (events, outcome) = events(Protocol::OpenAiResponses, bytes.as_bytes(), 64);
    outcome.unwrap();
    let mut accumulator = Accumulator::default();
    events.iter().for_each(|event| accumulator.push(event));
    let ends = events.iter().filter_map(|event| match event {
        Event::BlockEnd { details, .. } => Some(details.clone()),
        Event::ReasoningEnd { .. } => Some(None),
        _ => None,
    });
    let part = |(block, details)| match block {
        Block::Text(text) => AssistantPart::Text { text, details },
        Block::Reasoning { text, signature, redacted, details } => {
            AssistantPart::Reasoning { text, signature, redacted, details }
        }
        Block::ToolCall { id, name, input } => AssistantPart::ToolCall { id, name, input },
        other @ Block::InvalidToolCall { .. } => panic!("{other:?}"),
    };
    Message::Assistant(accumulator.finish().blocks.into_iter().zip(ends).map(part).collect())
}

#[test]
fn every_item_of_a_conversation_satisfies_the_schema_in_every_turn() {
    let reasoning = |id: &str| json!({"type":"reasoning","id":id,"encrypted_content":"enc","summary":[{"type":"summary_text","text":"hm"}]});
    let text = |id: &str, phase: &str| {
        let content = json!([{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}]);
        json!({"type":"message","id":id,"role":"assistant","status":"completed","phase":phase,"content":content})
    };
    let calls = |id: &str| json!({"type":"function_call","id":"fc_1","call_id":id,"name":"bash","arguments":"{\"a\":1}","status":"completed"});
    let pdf = media("application/pdf", "a.pdf", Source::Url("https://x.example/a.pdf".to_owned()));
    let messages = vec![
        Message::User(vec![UserPart::Text("hi".to_owned()), png()]),
        answer(&[reasoning("rs_1"), text("msg_1", "commentary"), calls("c1"), calls("c2")]),
        Message::ToolResults(vec![
            result("c1", "out", false),
            ToolResult { media: vec![pdf], ..result("c2", "", true) },
        ]),
        answer(&[reasoning("rs_2"), text("msg_2", "final_answer")]),
        Message::User(vec![UserPart::Text("go on".to_owned())]),
        // Answers of other models have no identity here.
        Message::Assistant(vec![AssistantPart::text("Hello"), call("toolu_1", json!({}))]),
        Message::User(vec![UserPart::Text("again".to_owned())]),
        answer(&[text("msg_3", "final_answer")]),
        Message::User(vec![UserPart::Text("more".to_owned())]),
    ];
    let want = [
        &["prompt"][..],
        &["reasoning", "text", "call", "call", "output", "output"],
        &["reasoning", "text"],
        &["prompt"],
        &["short text", "call", "output"],
        &["prompt"],
        &["text"],
        &["prompt"],
    ]
    .concat();
    let input = |count: usize| {
        let request = Request { messages: messages[..count].to_vec(), ..Request::default() };
        body(&openai(), &catalogue::find_or_default("gpt-5"), &request)["input"].take()
    };
    for count in 1..=messages.len() {
        let input = input(count);
        let kinds: Vec<&str> = input.as_array().unwrap().iter().map(item).collect();
        assert_eq!(kinds, want[..kinds.len()], "{count}");
    }
    let whole = input(messages.len());
    assert_eq!(whole.as_array().unwrap().len(), want.len());
    let own: Vec<_> = [1, 2, 8].map(|at| (whole[at]["id"].clone(), whole[at]["phase"].clone())).into();
    assert_eq!(
        own,
        [
            (json!("rs_1"), Value::Null),
            (json!("msg_1"), json!("commentary")),
            (json!("msg_2"), json!("final_answer"))
        ]
    );
}
