#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{AssistantPart, Media, Message, Request, SMALL_REQUEST_BYTES_MAX, Source, ToolResult, UserPart};
use crate::model::Effort;
use crate::model::Model;
use crate::protocols::history::{HistoryEntry, entries};
use serde_json::{Value, json};

pub(crate) fn call(id: &str, input: Value) -> AssistantPart {
    AssistantPart::ToolCall { id: id.to_owned(), name: "bash".to_owned(), input }
}

pub(crate) fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    let (call_id, text) = (call_id.to_owned(), text.to_owned().into());
    ToolResult { call_id, name: "bash".to_owned(), text, is_error, media: Vec::new() }
}

pub(crate) fn media(mime: &str, name: &str, source: Source) -> Media {
    Media { mime: mime.to_owned(), name: name.to_owned(), source }
}

pub(crate) fn png() -> UserPart {
    UserPart::Media(media("image/png", "", Source::Base64("AA==".to_owned())))
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::text(text)
}

#[test]
fn every_call_has_one_result_right_after_it() {
    let messages = [
        Message::User(vec![UserPart::Text(" ".to_owned())]),
        Message::ToolResults(vec![result("c0", "of nobody", false)]),
        Message::Assistant(vec![text(""), call("c1", json!({})), call("c2", json!({}))]),
        Message::User(vec![UserPart::Text("meanwhile".to_owned())]),
        Message::ToolResults(vec![result("c2", "two", false), result("c2", "twice", false)]),
        Message::Assistant(vec![text("\n")]),
        Message::ToolResults(vec![result("c1", "too late", false)]),
    ];
    let entries = entries(&messages);
    let [HistoryEntry::Assistant(parts), HistoryEntry::Results(results), HistoryEntry::User(_)] =
        entries.as_slice()
    else {
        panic!("{entries:?}")
    };
    assert_eq!(parts.len(), 2);
    let got: Vec<_> = results.iter().map(|result| (result.call_id.as_str(), result.text.as_str())).collect();
    assert_eq!(got, [("c1", "The tool call has no result: it was interrupted."), ("c2", "two")]);
    assert!(results[0].is_error && !results[1].is_error);
}

#[test]
fn a_request_is_small_up_to_a_bound_and_without_pictures() {
    let request = |bytes: usize, more: Message| Request {
        system: vec!["x".to_owned()],
        messages: vec![Message::User(vec![UserPart::Text("x".repeat(bytes))]), more],
        ..Request::default()
    };
    let note = || Message::Assistant(vec![text("x")]);
    assert!(request(SMALL_REQUEST_BYTES_MAX - 2, note()).is_small());
    assert!(!request(SMALL_REQUEST_BYTES_MAX - 1, note()).is_small());
    assert!(!request(0, Message::User(vec![png()])).is_small());
}

#[test]
fn an_unsupported_effort_becomes_the_nearest_supported_one() {
    let mut model = crate::catalogue::find_or_default("m");
    assert_eq!(model.effort(Some(Effort::High)), None, "nothing to choose from");
    for (efforts, wanted, got) in [
        (&[Effort::Low, Effort::High][..], Effort::High, Effort::High),
        (&[Effort::Low, Effort::High], Effort::Medium, Effort::Low),
        (&[Effort::Low, Effort::High], Effort::Max, Effort::High),
        (&[Effort::Low, Effort::High], Effort::Minimal, Effort::Low),
        (&[Effort::Low, Effort::High], Effort::Off, Effort::Low),
        (&[Effort::Off, Effort::High], Effort::Low, Effort::High),
        (&[Effort::Off, Effort::High], Effort::Off, Effort::Off),
    ] {
        model.efforts = efforts.to_vec();
        assert_eq!(model.effort(Some(wanted)), Some(got), "{wanted:?} of {efforts:?}");
        assert_eq!(model.effort(None), None);
    }
    for effort in Effort::ALL {
        assert_eq!(effort.as_str().parse(), Ok(effort));
    }
    assert!("loud".parse::<Effort>().is_err());
}

#[test]
fn media_that_a_model_does_not_accept_becomes_a_sentence() {
    let seeing = Model { images: true, pdf: true, ..crate::catalogue::find_or_default("m") };
    let blind = crate::catalogue::find_or_default("m");
    let data = || Source::Base64("AA==".to_owned());
    for (mime, source, sees, says) in [
        (
            "image/png",
            data(),
            true,
            "ERROR: Cannot read \"a.x\" (this model does not support image/png input). Inform the user.",
        ),
        (
            "application/pdf",
            data(),
            true,
            "ERROR: Cannot read \"a.x\" (this model does not support application/pdf input). Inform the user.",
        ),
        (
            "audio/mp3",
            data(),
            false,
            "ERROR: Cannot read \"a.x\" (this model does not support audio/mp3 input). Inform the user.",
        ),
        (
            "image/png",
            Source::Base64(String::new()),
            false,
            "ERROR: Cannot read \"a.x\" (it is empty or damaged). Inform the user.",
        ),
    ] {
        let media = media(mime, "a.x", source);
        assert_eq!(media.kind(&seeing).is_ok(), sees, "{mime}");
        assert_eq!(media.kind(&blind).unwrap_err(), says);
    }
}

/// Non-text output of a tool, in the request of each protocol: in the result or right after it.
#[test]
fn every_protocols_request_contains_media_from_tools() {
    use crate::protocols::{anthropic, gemini, openai_chat, openai_responses};
    use crate::provider::{Protocol, Provider};

    let media = |mime: &str, name: &str| media(mime, name, Source::Base64("AA==".to_owned()));
    let read = |name: &str, mime: &str| {
        let results = vec![ToolResult { media: vec![media(mime, name)], ..result("c1", "read", false) }];
        Request {
            messages: vec![Message::Assistant(vec![call("c1", json!({}))]), Message::ToolResults(results)],
            ..Request::default()
        }
    };
    let seeing = Model { images: true, pdf: true, ..crate::catalogue::find_or_default("m") };
    let blind = crate::catalogue::find_or_default("m");
    let of = |protocol| Provider::new("p", protocol, "https://x.example/v1");
    let bodies = |model: &Model, request: &Request| {
        let chat = openai_chat::request::body(&of(Protocol::OpenAiChat), model, request);
        let responses = openai_responses::request::body(&of(Protocol::OpenAiResponses), model, request);
        [
            anthropic::request::body(model, request)["messages"][1]["content"].take(),
            json!(chat["messages"].as_array().unwrap()[1..]),
            responses["input"][1]["output"].clone(),
            gemini::request::body(model, request)["contents"][1]["parts"].take(),
        ]
    };
    let reminder = "<system-reminder>\nOther output of the tools above:\n</system-reminder>";
    let tool = |text: &str| json!({"role":"tool","tool_call_id":"c1","content":text});
    let answered =
        |text: &str| json!({"functionResponse":{"id":"c1","name":"bash","response":{"output":text}}});
    let claude = |blocks: Value| json!([{"type":"tool_result","tool_use_id":"c1","content":blocks,"cache_control":{"type":"ephemeral"}}]);
    let source = |mime: &str| json!({"type":"base64","media_type":mime,"data":"AA=="});
    let (png, pdf) = (read("a.png", "image/png"), read("a.pdf", "application/pdf"));
    assert_eq!(
        bodies(&seeing, &png),
        [
            claude(json!([{"type":"text","text":"read"},{"type":"image","source":source("image/png")}])),
            json!([tool("read"), {"role":"user","content":[{"type":"text","text":reminder},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]),
            json!([{"type":"input_text","text":"read"},
            {"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]),
            json!([answered("read"), {"inlineData":{"mimeType":"image/png","data":"AA=="}}]),
        ]
    );
    assert_eq!(
        bodies(&seeing, &pdf),
        [
            claude(
                json!([{"type":"text","text":"read"},{"type":"document","source":source("application/pdf")}])
            ),
            json!([tool("read"), {"role":"user","content":[{"type":"text","text":reminder},
            {"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}}]}]),
            json!([{"type":"input_text","text":"read"},
            {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}]),
            json!([answered("read"), {"inlineData":{"mimeType":"application/pdf","data":"AA=="}}]),
        ]
    );
    for (request, name, mime) in [(png, "a.png", "image/png"), (pdf, "a.pdf", "application/pdf")] {
        let error = format!(
            "ERROR: Cannot read \"{name}\" (this model does not support {mime} input). Inform the user."
        );
        let both = format!("read\n{error}");
        assert_eq!(
            bodies(&blind, &request),
            [
                claude(json!([{"type":"text","text":"read"},{"type":"text","text":error}])),
                json!([tool(&both)]),
                json!([{"type":"input_text","text":"read"},{"type":"input_text","text":error}]),
                json!([answered(&both)]),
            ]
        );
    }
}
