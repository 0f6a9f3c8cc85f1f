#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use crate::anthropic::request::{body, headers, url};
use crate::config::{Model, Protocol, Provider};
use crate::request::{AssistantPart, Effort, Message, Request, ToolResult, ToolSpec, UserPart};
use serde_json::{Value, json};

fn text(text: &str) -> Message {
    Message::User(vec![UserPart::Text(text.to_owned())])
}

fn reasoning(text: &str, signature: Option<&str>, redacted: Option<&str>) -> AssistantPart {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    AssistantPart::Reasoning {
        text: text.to_owned(),
        signature: owned(signature),
        redacted: owned(redacted),
        details: None,
    }
}

fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), name: "bash".to_owned(), text: text.to_owned(), is_error }
}

fn messages(messages: Vec<Message>) -> Value {
    let model = Model::known_or_default("claude-sonnet-4-5");
    let request = Request { messages, output_tokens_max: 100, ..Request::default() };
    body(&model, &request)["messages"].take()
}

#[test]
fn the_whole_body_of_a_first_step() {
    let request = Request {
        model: "claude-sonnet-4-5".to_owned(),
        system: vec!["one".to_owned(), " ".to_owned(), "two".to_owned(), "three".to_owned()],
        messages: vec![text("hi")],
        tools: vec![ToolSpec {
            name: "bash".to_owned(),
            description: "d".to_owned(),
            schema: json!({"type":"object"}),
        }],
        output_tokens_max: 32_000,
        temperature: Some(0.5),
        cache_key: "ses_1".to_owned(),
        reasoning: None,
    };
    let cached = json!({"type":"ephemeral"});
    let want = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "system": [
            {"type":"text","text":"one","cache_control":cached},
            {"type":"text","text":"two","cache_control":cached},
            {"type":"text","text":"three"},
        ],
        "messages": [{"role":"user","content":[{"type":"text","text":"hi","cache_control":cached}]}],
        "tools": [{"name":"bash","description":"d","input_schema":{"type":"object"}}],
        "temperature": 0.5,
        "stream": true,
    });
    assert_eq!(body(&Model::known_or_default("claude-sonnet-4-5"), &request), want);
}

#[test]
fn history_is_made_acceptable() {
    let got = messages(vec![
        text("do it"),
        text(" "),
        Message::Assistant(vec![
            reasoning("plain", None, None),
            reasoning("", Some("sig"), None),
            reasoning("", None, Some("secret")),
            AssistantPart::Text(String::new()),
            AssistantPart::ToolCall {
                id: "call.1|x".to_owned(),
                name: "bash".to_owned(),
                input: json!({"a":1}),
            },
        ]),
        text("meanwhile"),
        Message::ToolResults(vec![result("call.1|x", "out", false), result("c2", "", true)]),
        Message::Assistant(vec![AssistantPart::Text("\n".to_owned())]),
        text("and now"),
    ]);
    let cached = json!({"type":"ephemeral"});
    let want = json!([
        {"role":"user","content":[{"type":"text","text":"do it"}]},
        {"role":"assistant","content":[
            {"type":"thinking","thinking":"","signature":"sig"},
            {"type":"redacted_thinking","data":"secret"},
            {"type":"tool_use","id":"call_1_x","name":"bash","input":{"a":1},"cache_control":cached},
        ]},
        {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"call_1_x","content":[{"type":"text","text":"out"}]},
            {"type":"tool_result","tool_use_id":"c2","is_error":true},
            {"type":"text","text":"meanwhile"},
            {"type":"text","text":"and now","cache_control":cached},
        ]},
    ]);
    assert_eq!(got, want);
}

#[test]
fn the_cache_mark_never_lands_on_reasoning() {
    let got = messages(vec![
        text("a"),
        Message::Assistant(vec![AssistantPart::Text("b".to_owned()), reasoning("c", Some("s"), None)]),
    ]);
    assert_eq!(got[1]["content"][0]["cache_control"], json!({"type":"ephemeral"}));
    assert_eq!(got[1]["content"][1]["cache_control"], Value::Null);
}

#[test]
fn thinking_is_asked_for_in_the_models_way() {
    let ask = |id: &str, output_tokens_max| {
        let model = Model::known_or_default(id);
        let request = Request {
            output_tokens_max,
            temperature: Some(1.0),
            reasoning: Some(Effort::High),
            ..Request::default()
        };
        let body = body(&model, &request);
        let beta = headers(&model, &request).iter().any(|(name, _)| *name == "anthropic-beta");
        (body["thinking"].clone(), body["output_config"].clone(), body["temperature"].clone(), beta)
    };
    let budget = |tokens: u64| json!({"type":"enabled","budget_tokens":tokens});
    assert_eq!(ask("claude-haiku-4-5", 32_000), (budget(16_000), Value::Null, Value::Null, true));
    assert_eq!(ask("claude-haiku-4-5", 4_000), (budget(2_000), Value::Null, Value::Null, true));
    assert_eq!(ask("claude-haiku-4-5", 100).0, Value::Null);
    let adaptive = (json!({"type":"adaptive"}), json!({"effort":"high"}), Value::Null, false);
    assert_eq!(ask("claude-opus-4-7", 32_000), adaptive);
}

#[test]
fn pictures_and_addresses() {
    let image = UserPart::Image { media_type: "image/png".to_owned(), base64: "AA==".to_owned() };
    let got = messages(vec![Message::User(vec![image])]);
    assert_eq!(
        got[0]["content"][0]["source"],
        json!({"type":"base64","media_type":"image/png","data":"AA=="})
    );
    for (base, want) in [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("http://proxy/anthropic", "http://proxy/anthropic/v1/messages"),
    ] {
        assert_eq!(url(&Provider::new("p", Protocol::Anthropic, base)), want);
    }
}
