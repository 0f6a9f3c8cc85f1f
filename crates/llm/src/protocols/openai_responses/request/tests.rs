#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod schema;

use super::{body, url};
use crate::catalogue;
use crate::model::Effort;
use crate::provider::{Protocol, Provider};
use crate::request::tests::{call, media, png, result};
use crate::request::{AssistantPart, Message, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Value, json};

fn openai() -> Provider {
    Provider::new("openai", Protocol::OpenAiResponses, "https://api.openai.com/v1")
}

fn thought(details: Value) -> AssistantPart {
    AssistantPart::Reasoning {
        text: "hm".to_owned(),
        signature: None,
        redacted: None,
        details: Some(details),
    }
}

#[test]
fn a_first_step_has_this_body() {
    let request = Request {
        model: "gpt-5".to_owned(),
        system: vec!["one".to_owned(), String::new(), "two".to_owned()],
        messages: vec![Message::User(vec![UserPart::Text("hi".to_owned()), png()])],
        tools: vec![tool::Spec {
            name: "bash".to_owned(),
            description: "d".to_owned(),
            schema: json!({"type":"object"}),
        }],
        tool_choice: ToolChoice::Named("bash".to_owned()),
        output_tokens_max: 1_000,
        temperature: Some(0.5),
        cache_key: "ses_1".to_owned(),
        variant: Some(Effort::Max),
        ..Request::default()
    };
    let want = json!({
        "model": "gpt-5",
        "instructions": "one\n\ntwo",
        "input": [{"type":"message","role":"user","content":[
            {"type":"input_text","text":"hi"},
            {"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"},
        ]}],
        "tools": [{"type":"function","name":"bash","description":"d","parameters":{"type":"object","properties":{}},"strict":false}],
        "tool_choice": {"type":"function","name":"bash"},
        "max_output_tokens": 1_000,
        "reasoning": {"summary":"auto","effort":"high"},
        "include": ["reasoning.encrypted_content"],
        "store": false,
        "prompt_cache_key": "ses_1",
        "stream": true,
    });
    assert_eq!(body(&openai(), &catalogue::find_or_default("gpt-5"), &request), want);
    let local = Provider::new("local", Protocol::OpenAiResponses, "http://localhost:8080");
    let got = body(&local, &catalogue::find_or_default("mine"), &request);
    assert_eq!(
        (&got["temperature"], &got["reasoning"], &got["include"]),
        (&json!(0.5), &Value::Null, &Value::Null)
    );
    assert_eq!(got["prompt_cache_key"], Value::Null, "only OpenAI itself knows it");
    assert_eq!(url(&local), "http://localhost:8080/v1/responses");
    assert_eq!(url(&openai()), "https://api.openai.com/v1/responses");
}

#[test]
fn history_carries_encrypted_reasoning_calls_and_results_back() {
    let item = json!({"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"enc"});
    let foreign = json!({"type":"reasoning.text","text":"of another protocol"});
    let pdf = media("application/pdf", "a.pdf", Source::Base64("AA==".to_owned()));
    let messages = vec![
        Message::Assistant(vec![
            thought(json!([foreign, item])),
            AssistantPart::text("I look."),
            call(&format!("call|{}", "x".repeat(80)), json!({"a":1})),
        ]),
        Message::ToolResults(vec![ToolResult {
            media: vec![pdf],
            ..result(&format!("call|{}", "x".repeat(80)), "out", false)
        }]),
        Message::Assistant(vec![AssistantPart::text("broken"), thought(json!([item]))]),
        Message::User(vec![UserPart::Text("go on".to_owned())]),
    ];
    let got = body(
        &openai(),
        &catalogue::find_or_default("gpt-5"),
        &Request { messages, ..Request::default() },
    )["input"]
        .take();
    let id = got[2]["call_id"].as_str().unwrap();
    assert!(id.len() == 64 && id.starts_with("call_xx"), "{id}");
    let assistant = |text: &str| json!({"type":"message","role":"assistant","content":text});
    let want = json!([
        item,
        assistant("I look."),
        {"type":"function_call","call_id":id,"name":"bash","arguments":"{\"a\":1}"},
        {"type":"function_call_output","call_id":id,"output":[
            {"type":"input_text","text":"out"},
            {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},
        ]},
        assistant("broken"),
        {"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]},
    ]);
    assert_eq!(got, want);
}
