#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{body, url};
use crate::catalogue;
use crate::model::Effort;
use crate::model::Model;
use crate::provider::{Protocol, Provider};
use crate::request::tests::{call, media, png, result};
use crate::request::{AssistantPart, Message, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Value, json};

fn openai() -> Provider {
    Provider::new("openai", Protocol::OpenAiChat, "https://api.openai.com/v1")
}

fn request() -> Request {
    Request {
        model: "gpt-5".to_owned(),
        system: vec!["one".to_owned(), "two".to_owned()],
        messages: vec![Message::User(vec![UserPart::Text("hi".to_owned())])],
        tools: vec![tool::Spec {
            name: "bash".to_owned(),
            description: "d".to_owned(),
            schema: json!({"type":"object"}),
        }],
        output_tokens_max: 1_000,
        temperature: Some(0.5),
        cache_key: "ses_1".to_owned(),
        variant: Some(Effort::Low),
        ..Request::default()
    }
}

#[test]
fn a_first_step_has_this_body() {
    let want = json!({
        "model": "gpt-5",
        "messages": [{"role":"system","content":"one\n\ntwo"}, {"role":"user","content":"hi"}],
        "tools": [{"type":"function","function":{"name":"bash","description":"d","parameters":{"type":"object","properties":{}}}}],
        "max_completion_tokens": 1_000,
        "reasoning_effort": "low",
        "prompt_cache_key": "ses_1",
        "stream": true,
        "stream_options": {"include_usage":true},
    });
    assert_eq!(body(&openai(), &catalogue::find_or_default("gpt-5"), &request()), want);
}

#[test]
fn compatible_servers_get_only_widely_supported_fields() {
    let local = Provider::new("local", Protocol::OpenAiChat, "http://localhost:8080");
    let got = body(&local, &catalogue::find_or_default("mine"), &request());
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
            call("c1", json!({"a":1})),
            call("c2", json!({})),
        ]),
        Message::ToolResults(vec![result("c1", "out", true), result("c2", "", false)]),
        Message::Assistant(vec![AssistantPart::text("done")]),
        Message::Assistant(vec![AssistantPart::text("")]),
        Message::User(vec![UserPart::Text("look".to_owned()), png()]),
    ];
    let request = Request { messages: history, ..Request::default() };
    let other = json!({"id":"c2","type":"function","function":{"name":"bash","arguments":"{}"}});
    let call = json!({"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"a\":1}"}});
    let tail = [
        json!({"role":"tool","tool_call_id":"c1","content":"out"}),
        json!({"role":"tool","tool_call_id":"c2","content":""}),
    ];
    let user = json!({"role":"user","content":[
        {"type":"text","text":"look"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},
    ]});
    // Some of these servers are not known to accept images; here all of them do.
    let seeing = |id: &str| Model { images: true, ..catalogue::find_or_default(id) };
    let got = |id: &str| body(&openai(), &seeing(id), &request)["messages"].take();
    let want = json!([
        {"role":"assistant","content":null,"tool_calls":[call,other],"reasoning_details":[detail]},
        tail[0], tail[1],
        {"role":"assistant","content":"done"},
        user,
    ]);
    assert_eq!(got("gpt-4o"), want);
    let want = json!([
        {"role":"assistant","content":null,"tool_calls":[call,other],"reasoning_details":[detail],"reasoning_content":"t"},
        tail[0], tail[1],
        {"role":"assistant","content":"done","reasoning_content":""},
        user,
    ]);
    assert_eq!(got("deepseek-v4-flash"), want);
}

#[test]
fn media_from_tools_arrive_in_a_user_message() {
    let pdf = |source| media("application/pdf", "a.pdf", source);
    let files = vec![pdf(Source::Base64("AA==".to_owned())), pdf(Source::Url("https://x/a.pdf".to_owned()))];
    let messages = vec![
        Message::Assistant(vec![call("c1", json!({}))]),
        Message::ToolResults(vec![ToolResult { media: files, ..result("c1", "see", false) }]),
    ];
    let got =
        body(&openai(), &catalogue::find_or_default("gpt-5"), &Request { messages, ..Request::default() });
    assert_eq!(got["messages"][1], json!({"role":"tool","tool_call_id":"c1","content":"see"}));
    let content = &got["messages"][2]["content"];
    let file =
        json!({"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}});
    assert_eq!((&got["messages"][2]["role"], &content[1]), (&json!("user"), &file));
    assert!(content[2]["text"].as_str().unwrap().starts_with("ERROR: "), "{content}");
}

#[test]
fn servers_with_deviations_get_their_own_form() {
    let at = |url: &str, id: &str, request: &Request| {
        body(&Provider::new("p", Protocol::OpenAiChat, url), &catalogue::find_or_default(id), request)
    };
    let history = Request {
        system: vec!["s".to_owned()],
        messages: vec![
            Message::Assistant(vec![call("call_long_id", json!({}))]),
            Message::ToolResults(vec![result("call_long_id", "out", false)]),
            Message::User(vec![UserPart::Text("go on".to_owned())]),
        ],
        ..Request::default()
    };
    let got = at("https://api.mistral.ai/v1", "devstral-latest", &history);
    let roles: Vec<_> =
        got["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["system", "assistant", "tool", "assistant", "user"]);
    let id = got["messages"][2]["tool_call_id"].as_str().unwrap();
    assert_eq!((id.len(), &got["messages"][1]["tool_calls"][0]["id"]), (9, &json!(id)));
    assert_eq!(got["tools"][0]["function"]["name"], "_noop", "history with calls never lacks a tool");
    let cached = json!([{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]);
    let got = at("https://openrouter.ai/api/v1", "anthropic/claude-opus-4.5", &history);
    assert_eq!(got["messages"][0]["content"], cached);
    assert_eq!(got["messages"][1]["content"], Value::Null);
    assert_eq!(at("https://openrouter.ai/api/v1", "gpt-5", &history)["messages"][0]["content"], "s");
    let schema = json!({"properties":{"a":{"$ref":"#/x","description":"d"}}});
    let spec = tool::Spec { name: "t".to_owned(), description: String::new(), schema };
    let got =
        at("https://api.moonshot.ai/v1", "kimi-k2.6", &Request { tools: vec![spec], ..Request::default() });
    assert_eq!(got["tools"][0]["function"]["parameters"]["properties"]["a"], json!({"$ref":"#/x"}));
    assert_eq!(got["temperature"], json!(1.0), "what suits the model");
}

#[test]
fn a_call_may_be_forced_or_forbidden() {
    let spec = tool::Spec { name: "t".to_owned(), description: String::new(), schema: json!({}) };
    for (tool_choice, want) in [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::Named("t".to_owned()), json!({"type":"function","function":{"name":"t"}})),
    ] {
        let request = Request { tools: vec![spec.clone()], tool_choice, ..Request::default() };
        assert_eq!(body(&openai(), &catalogue::find_or_default("gpt-5"), &request)["tool_choice"], want);
    }
}
