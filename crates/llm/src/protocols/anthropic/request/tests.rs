#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{body, headers, url};
use crate::catalogue;
use crate::model::Effort;
use crate::provider::{Protocol, Provider};
use crate::request::tests::{call, media, png, result};
use crate::request::{AssistantPart, Message, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
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

fn messages(messages: Vec<Message>) -> Value {
    let model = catalogue::find_or_default("claude-sonnet-4-5");
    let request = Request { messages, output_tokens_max: 100, ..Request::default() };
    body(&model, &request)["messages"].take()
}

#[test]
fn a_first_step_has_this_body() {
    let request = Request {
        model: "claude-sonnet-4-5".to_owned(),
        system: vec!["one".to_owned(), " ".to_owned(), "two".to_owned(), "three".to_owned()],
        messages: vec![text("hi")],
        tools: vec![tool::Spec {
            name: "bash".to_owned(),
            description: "d".to_owned(),
            schema: json!({"type":"object"}),
        }],
        output_tokens_max: 32_000,
        temperature: Some(0.5),
        cache_key: "ses_1".to_owned(),
        ..Request::default()
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
        "tools": [{"name":"bash","description":"d","input_schema":{"type":"object","properties":{}}}],
        "temperature": 0.5,
        "stream": true,
    });
    assert_eq!(body(&catalogue::find_or_default("claude-sonnet-4-5"), &request), want);
}

#[test]
fn history_is_cleaned_up_for_the_api() {
    let got = messages(vec![
        text("do it"),
        text(" "),
        Message::Assistant(vec![
            reasoning("plain", None, None),
            reasoning("", Some("sig"), None),
            reasoning("", None, Some("secret")),
            AssistantPart::text(""),
            call("call.1|x", json!({"a":1})),
            call("c2", json!({})),
            call("c3", json!({})),
        ]),
        text("meanwhile"),
        Message::ToolResults(vec![result("lost", "whose?", false), result("c2", "", true)]),
        Message::ToolResults(vec![result("call.1|x", "out", false), result("c2", "again", false)]),
        Message::Assistant(vec![AssistantPart::text("\n")]),
        text("and now"),
    ]);
    let cached = json!({"type":"ephemeral"});
    let want = json!([
        {"role":"user","content":[{"type":"text","text":"do it"}]},
        {"role":"assistant","content":[
            {"type":"thinking","thinking":"","signature":"sig"},
            {"type":"redacted_thinking","data":"secret"},
            {"type":"tool_use","id":"call_1_x","name":"bash","input":{"a":1}},
            {"type":"tool_use","id":"c2","name":"bash","input":{}},
            {"type":"tool_use","id":"c3","name":"bash","input":{},"cache_control":cached},
        ]},
        {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"call_1_x","content":[{"type":"text","text":"out"}]},
            {"type":"tool_result","tool_use_id":"c2","is_error":true},
            {"type":"tool_result","tool_use_id":"c3","is_error":true,
                "content":[{"type":"text","text":"The tool call has no result: it was interrupted."}]},
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
        Message::Assistant(vec![
            reasoning("c", Some("s"), None),
            AssistantPart::text("b"),
            reasoning("broken off", Some("s"), None),
        ]),
    ]);
    let blocks = got[1]["content"].as_array().unwrap();
    assert_eq!(blocks.len(), 2, "no answer ends with reasoning: {blocks:?}");
    assert_eq!(
        (&blocks[0]["cache_control"], &blocks[1]["cache_control"]),
        (&Value::Null, &json!({"type":"ephemeral"}))
    );
}

#[test]
fn an_empty_text_between_signed_reasoning_blocks_becomes_a_space() {
    let parts = vec![
        AssistantPart::text(""),
        reasoning("a", Some("s1"), None),
        AssistantPart::text(""),
        reasoning("b", None, Some("r")),
        AssistantPart::text("end"),
    ];
    let got = messages(vec![text("a"), Message::Assistant(parts)]);
    let kinds: Vec<_> =
        got[1]["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "text", "redacted_thinking", "text"]);
    assert_eq!(got[1]["content"][1]["text"], " ");
}

#[test]
fn a_forced_call_disables_thinking_and_a_history_with_calls_always_has_a_tool() {
    let model = catalogue::find_or_default("claude-opus-4-7");
    let tools = vec![tool::Spec { name: "out".to_owned(), description: "d".to_owned(), schema: json!({}) }];
    for (tool_choice, want, thinks) in [
        (ToolChoice::Auto, Value::Null, true),
        (ToolChoice::None, json!({"type":"none"}), true),
        (ToolChoice::Required, json!({"type":"any"}), false),
        (ToolChoice::Named("out".to_owned()), json!({"type":"tool","name":"out"}), false),
    ] {
        let variant = Some(Effort::Low);
        let body =
            body(&model, &Request { tools: tools.clone(), tool_choice, variant, ..Request::default() });
        assert_eq!((&body["tool_choice"], body["thinking"].is_object()), (&want, thinks));
    }
    let messages = vec![Message::Assistant(vec![call("c1", json!({}))])];
    assert_eq!(body(&model, &Request { messages, ..Request::default() })["tools"][0]["name"], "_noop");
    assert_eq!(body(&model, &Request::default())["tools"], Value::Null);
}

#[test]
fn thinking_is_requested_in_the_form_that_the_model_supports() {
    let ask = |id: &str, output_tokens_max| {
        let model = catalogue::find_or_default(id);
        let request = Request {
            output_tokens_max,
            temperature: Some(1.0),
            variant: Some(Effort::High),
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
fn media_and_addresses() {
    let pdf = || media("application/pdf", "a.pdf", Source::Url("https://x/a.pdf".to_owned()));
    let sound = media("audio/mp3", "a.mp3", Source::Base64("AA==".to_owned()));
    let tool_result = ToolResult { media: vec![pdf()], ..result("c1", "see", false) };
    let got = messages(vec![
        Message::User(vec![png(), UserPart::Media(sound)]),
        Message::Assistant(vec![call("c1", json!({}))]),
        Message::ToolResults(vec![tool_result]),
    ]);
    let user = &got[0]["content"];
    assert_eq!(user[0]["source"], json!({"type":"base64","media_type":"image/png","data":"AA=="}));
    assert_eq!(
        user[1]["text"],
        "ERROR: Cannot read \"a.mp3\" (this model does not support audio/mp3 input). Inform the user."
    );
    let want = json!([{"type":"text","text":"see"}, {"type":"document","source":{"type":"url","url":"https://x/a.pdf"}}]);
    assert_eq!(got[2]["content"][0]["content"], want);
    for (base, want) in [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("http://proxy/anthropic", "http://proxy/anthropic/v1/messages"),
    ] {
        assert_eq!(url(&Provider::new("p", Protocol::Anthropic, base)), want);
    }
}
