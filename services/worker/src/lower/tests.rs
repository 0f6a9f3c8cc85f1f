use super::*;
use domain::{
    ids::Timestamp,
    message::{Error, MessageTime, Path},
    money::{Tokens, UsdPicos},
    part::{Span, Text, Tool},
};
use llm::request::Message as Lowered;
use serde_json::json;

fn model(name: &str) -> ModelRef {
    ModelRef { provider_id: "p".into(), model_id: name.into() }
}

fn part(at: u64, body: Body) -> (u64, Part) {
    let id = |text: String| text.parse().expect("an id");
    (
        at,
        Part {
            id: id(format!("prt_{at}")),
            session_id: "ses_1".parse().expect("an id"),
            message_id: "msg_1".parse().expect("an id"),
            body,
        },
    )
}

fn text(words: &str) -> Body {
    Body::Text(Text { text: words.into(), ..Text::default() })
}

fn assistant(finish: Option<&str>, error: Option<Error>) -> Assistant {
    Assistant {
        id: "msg_1".parse().expect("an id"),
        session_id: "ses_1".parse().expect("an id"),
        time: MessageTime { created: Timestamp(1), completed: None },
        parent_id: "msg_0".parse().expect("an id"),
        model: model("m").into(),
        mode: "build".into(),
        agent: "build".into(),
        path: Path { cwd: "/".into(), root: "/".into() },
        cost: UsdPicos(0),
        tokens: Tokens::default(),
        finish: finish.map(ToOwned::to_owned),
        error,
        summary: None,
        structured: None,
    }
}

fn running_tool() -> Body {
    let time = Span { start: Timestamp(1), end: None };
    let state = ToolState::Running { input: json!({"a": 1}), title: None, metadata: None, time };
    Body::Tool(Tool { call_id: "c".into(), tool: "bash".into(), state })
}

#[test]
fn a_call_never_stands_without_an_answer() {
    let lowered = step(
        &assistant(Some("tool-calls"), None),
        &[part(1, text("hm")), part(2, running_tool())],
        &model("m"),
    );
    let call = AssistantPart::ToolCall { id: "c".into(), name: "bash".into(), input: json!({"a": 1}) };
    let result = ToolResult {
        call_id: "c".into(),
        name: "bash".into(),
        text: INTERRUPTED.into(),
        media: vec![],
        is_error: true,
    };
    let said = vec![AssistantPart::Text("hm".into()), call];
    assert_eq!(lowered, [Lowered::Assistant(said), Lowered::ToolResults(vec![result])]);
}

#[test]
fn signed_reasoning_goes_back_only_to_its_own_model() {
    let thought = || {
        let metadata = reasoning_metadata(Some("sig"), None, None);
        Body::Reasoning(Reasoning {
            text: "hm".into(),
            time: Span { start: Timestamp(1), end: None },
            metadata,
        })
    };
    let answered = assistant(Some("stop"), None);
    let same = step(&answered, &[part(1, thought())], &model("m"));
    assert!(matches!(&same[0], Lowered::Assistant(parts)
        if matches!(&parts[..], [AssistantPart::Reasoning { signature: Some(signature), .. }] if signature == "sig")));
    assert_eq!(step(&answered, &[part(1, thought())], &model("other"))[0], Lowered::Assistant(vec![]));
}

#[test]
fn what_failed_is_left_out_and_what_was_aborted_is_kept() {
    let parts = [part(1, text("half"))];
    assert!(step(&assistant(None, None), &parts, &model("m")).is_empty(), "an open answer");
    assert!(
        step(&assistant(None, Some(Error::new("APIError", "x"))), &parts, &model("m")).is_empty(),
        "a failed one"
    );
    assert_eq!(
        step(&assistant(None, Some(Error::aborted())), &parts, &model("m")).len(),
        2,
        "an aborted one"
    );
}

#[test]
fn prompts_are_lowered_without_what_is_ignored() {
    let ignored = Body::Text(Text { text: "secret".into(), ignored: Some(true), ..Text::default() });
    assert_eq!(user_parts(&[part(1, text("do it")), part(2, ignored)]), [UserPart::Text("do it".into())]);
}
