#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{body, url};
use crate::catalogue;
use crate::model::Effort;
use crate::provider::{Protocol, Provider};
use crate::request::tests::{call, media, png, result};
use crate::request::{AssistantPart, Message, Request, Source, ToolChoice, ToolResult, UserPart};
use domain::policy::tool;
use serde_json::{Value, json};

fn user(text: &str) -> Message {
    Message::User(vec![UserPart::Text(text.to_owned())])
}

fn signed(text: &str, of: &str) -> AssistantPart {
    let details = json!([{"type":"thought_signature","of":of,"signature":"s"}]);
    AssistantPart::Reasoning {
        text: text.to_owned(),
        signature: None,
        redacted: None,
        details: Some(details),
    }
}

fn contents(id: &str, messages: Vec<Message>) -> Value {
    body(&catalogue::find_or_default(id), &Request { messages, ..Request::default() })["contents"].take()
}

#[test]
fn a_first_step_has_this_body() {
    let spec =
        |name: &str, schema: Value| tool::Spec { name: name.to_owned(), description: "d".to_owned(), schema };
    let request = Request {
        model: "gemini-3-pro-preview".to_owned(),
        system: vec!["one".to_owned(), "two".to_owned()],
        messages: vec![user("hi"), Message::User(vec![png()])],
        tools: vec![
            spec(
                "bash",
                json!({"type":"object","properties":{"n":{"type":"integer","enum":[1]}},"additionalProperties":false}),
            ),
            spec("list", json!({"type":"object","properties":{}})),
        ],
        tool_choice: ToolChoice::Named("bash".to_owned()),
        output_tokens_max: 1_000,
        variant: Some(Effort::Max),
        ..Request::default()
    };
    let want = json!({
        "systemInstruction": {"parts":[{"text":"one\n\ntwo"}]},
        "contents": [{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}],
        "tools": [{"functionDeclarations":[
            {"name":"bash","description":"d","parameters":{"type":"object","properties":{"n":{"type":"string","enum":["1"]}}}},
            {"name":"list","description":"d"},
        ]}],
        "toolConfig": {"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["bash"]}},
        "generationConfig": {"maxOutputTokens":1_000,"temperature":1.0,"topP":0.95,"topK":64,
            "thinkingConfig":{"includeThoughts":true,"thinkingLevel":"high"}},
    });
    assert_eq!(body(&catalogue::find_or_default("gemini-3-pro-preview"), &request), want);
}

#[test]
fn thinking_is_requested_in_the_form_that_the_model_supports() {
    let ask = |id: &str, variant| {
        let request = Request { variant, ..Request::default() };
        body(&catalogue::find_or_default(id), &request)["generationConfig"]["thinkingConfig"].take()
    };
    assert_eq!(ask("gemini-2.5-flash", Some(Effort::Off)), json!({"thinkingBudget":0}));
    assert_eq!(
        ask("gemini-2.5-flash", Some(Effort::Low)),
        json!({"includeThoughts":true,"thinkingBudget":4096})
    );
    assert_eq!(
        ask("gemini-2.5-pro", Some(Effort::Off)),
        json!({"includeThoughts":true,"thinkingBudget":4096})
    );
    assert_eq!(ask("gemini-3-pro-preview", None), json!({"includeThoughts":true}));
    assert_eq!(ask("mine", Some(Effort::High)), Value::Null, "it does not think");
}

#[test]
fn history_carries_signatures_calls_and_results_back() {
    let sound = UserPart::Media(media("audio/mp3", "", Source::Base64("AA==".to_owned())));
    let pdf = media("application/pdf", "a.pdf", Source::Url("https://x/a.pdf".to_owned()));
    let got = contents(
        "gemini-3-pro-preview",
        vec![
            user("do it"),
            Message::Assistant(vec![signed("hm", "call"), call("c1", json!({"a":1})), call("c2", json!({}))]),
            Message::ToolResults(vec![
                ToolResult { media: vec![pdf], ..result("c1", "out", false) },
                result("c2", "no", true),
            ]),
            Message::User(vec![UserPart::Text("look".to_owned()), sound]),
            Message::Assistant(vec![AssistantPart::text("done"), signed("", "text")]),
            Message::Assistant(vec![signed("t", "thought"), call("c3", json!({}))]),
        ],
    );
    let want = json!([
        {"role":"user","parts":[{"text":"do it"}]},
        {"role":"model","parts":[
            {"functionCall":{"id":"c1","name":"bash","args":{"a":1}},"thoughtSignature":"s"},
            {"functionCall":{"id":"c2","name":"bash","args":{}}},
        ]},
        {"role":"user","parts":[
            {"functionResponse":{"id":"c1","name":"bash","response":{"output":"out"}}},
            {"functionResponse":{"id":"c2","name":"bash","response":{"error":"no"}}},
            {"fileData":{"mimeType":"application/pdf","fileUri":"https://x/a.pdf"}},
        ]},
        {"role":"user","parts":[
            {"text":"look"},
            {"text":"ERROR: Cannot read audio (this model does not support audio/mp3 input). Inform the user."},
        ]},
        {"role":"model","parts":[
            {"text":"done","thoughtSignature":"s"},
            {"text":"t","thought":true,"thoughtSignature":"s"},
            {"functionCall":{"id":"c3","name":"bash","args":{}},"thoughtSignature":"skip_thought_signature_validator"},
        ]},
        {"role":"user","parts":[{"functionResponse":{"id":"c3","name":"bash",
            "response":{"error":"The tool call has no result: it was interrupted."}}}]},
    ]);
    assert_eq!(got, want);
    let old = contents("gemini-2.5-pro", vec![Message::Assistant(vec![call("c1", json!({}))])]);
    assert_eq!(
        old[0]["parts"][0]["thoughtSignature"],
        Value::Null,
        "older models know no signatures of others"
    );
}

#[test]
fn urls_contain_the_model_and_never_the_key() {
    let google = |url: &str| Provider::new("google", Protocol::Gemini, url);
    for (base, model, want) in [
        (
            "https://generativelanguage.googleapis.com",
            "gemini-2.5-pro",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        ),
        (
            "http://x/v1beta/",
            "tunedModels/a b?c",
            "http://x/v1beta/tunedModels/a%20b%3Fc:streamGenerateContent?alt=sse",
        ),
    ] {
        assert_eq!(url(&google(base), model), want);
    }
}
