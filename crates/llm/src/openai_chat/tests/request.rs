#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use crate::config::{Model, Protocol, Provider};
use crate::openai_chat::request::{body, url};
use crate::request::{AssistantPart, Effort, Message, Request, ToolResult, ToolSpec, UserPart};
use serde_json::{Value, json};

fn openai() -> Provider {
    Provider::new("openai", Protocol::OpenAiChat, "https://api.openai.com/v1")
}

fn request() -> Request {
    Request {
        model: "gpt-5".to_owned(),
        system: vec!["one".to_owned(), "two".to_owned()],
        messages: vec![Message::User(vec![UserPart::Text("hi".to_owned())])],
        tools: vec![ToolSpec {
            name: "bash".to_owned(),
            description: "d".to_owned(),
            schema: json!({"type":"object"}),
        }],
        output_tokens_max: 1_000,
        temperature: Some(0.5),
        cache_key: "ses_1".to_owned(),
        reasoning: Some(Effort::Low),
    }
}

#[test]
fn the_whole_body_of_a_first_step() {
    let want = json!({
        "model": "gpt-5",
        "messages": [{"role":"system","content":"one\n\ntwo"}, {"role":"user","content":"hi"}],
        "tools": [{"type":"function","function":{"name":"bash","description":"d","parameters":{"type":"object"}}}],
        "max_completion_tokens": 1_000,
        "reasoning_effort": "low",
        "prompt_cache_key": "ses_1",
        "stream": true,
        "stream_options": {"include_usage":true},
    });
    assert_eq!(body(&openai(), &Model::known_or_default("gpt-5"), &request()), want);
}

#[test]
fn compatible_servers_get_only_what_all_of_them_know() {
    let local = Provider::new("local", Protocol::OpenAiChat, "http://localhost:8080");
    let got = body(&local, &Model::known_or_default("mine"), &request());
    assert_eq!((&got["max_tokens"], &got["temperature"]), (&json!(1_000), &json!(0.5)));
    for key in ["max_completion_tokens", "prompt_cache_key", "reasoning_effort"] {
        assert_eq!(got[key], Value::Null, "{key}");
    }
    assert_eq!(url(&local), "http://localhost:8080/v1/chat/completions");
    assert_eq!(url(&openai()), "https://api.openai.com/v1/chat/completions");
    assert_eq!(
        url(&Provider::new("x", Protocol::OpenAiChat, "http://x/api/")),
        "http://x/api/chat/completions"
    );
}

#[test]
fn history_carries_calls_results_and_reasoning_back() {
    let detail = json!({"type":"reasoning.text","text":"t","signature":"s"});
    let history = vec![
        Message::Assistant(vec![
            AssistantPart::Reasoning {
                text: "t".to_owned(),
                signature: None,
                redacted: None,
                details: Some(json!([detail])),
            },
            AssistantPart::ToolCall { id: "c1".to_owned(), name: "bash".to_owned(), input: json!({"a":1}) },
        ]),
        Message::ToolResults(vec![
            ToolResult {
                call_id: "c1".to_owned(),
                name: "bash".to_owned(),
                text: "out".to_owned(),
                is_error: true,
            },
            ToolResult {
                call_id: "c2".to_owned(),
                name: "bash".to_owned(),
                text: String::new(),
                is_error: false,
            },
        ]),
        Message::Assistant(vec![AssistantPart::Text("done".to_owned())]),
        Message::Assistant(vec![AssistantPart::Text(String::new())]),
        Message::User(vec![
            UserPart::Text("look".to_owned()),
            UserPart::Image { media_type: "image/png".to_owned(), base64: "AA==".to_owned() },
        ]),
    ];
    let request = Request { messages: history, ..Request::default() };
    let call = json!({"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"a\":1}"}});
    let tail = [
        json!({"role":"tool","tool_call_id":"c1","content":"out"}),
        json!({"role":"tool","tool_call_id":"c2","content":""}),
    ];
    let user = json!({"role":"user","content":[
        {"type":"text","text":"look"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},
    ]});
    let got = |id: &str| body(&openai(), &Model::known_or_default(id), &request)["messages"].take();
    let want = json!([
        {"role":"assistant","content":null,"tool_calls":[call],"reasoning_details":[detail]},
        tail[0], tail[1],
        {"role":"assistant","content":"done"},
        user,
    ]);
    assert_eq!(got("gpt-4o"), want);
    let want = json!([
        {"role":"assistant","content":null,"tool_calls":[call],"reasoning_details":[detail],"reasoning_content":"t"},
        tail[0], tail[1],
        {"role":"assistant","content":"done","reasoning_content":""},
        user,
    ]);
    assert_eq!(got("deepseek-v4-flash"), want);
}
