#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use domain::{
    conversation::{
        message::ModelRef,
        part::{self, Ran, Span},
    },
    ids::Timestamp,
};
use serde_json::{Map, Value, json};

fn part(tool: &str, state: ToolState) -> Part {
    Part {
        id: "prt_1".parse().unwrap(),
        session_id: "ses_1".parse().unwrap(),
        message_id: "msg_1".parse().unwrap(),
        body: Body::Tool(part::Tool { call_id: "c".to_owned(), tool: tool.to_owned(), state }),
    }
}

fn pending() -> ToolState {
    ToolState::Pending { input: json!({}), raw: String::new() }
}

fn running() -> ToolState {
    let time = Span { start: Timestamp(1), end: None };
    ToolState::Running { input: json!({}), title: None, metadata: None, time }
}

fn completed() -> ToolState {
    ToolState::Completed {
        input: json!({}),
        output: String::new().into(),
        title: String::new(),
        metadata: Map::new(),
        time: Ran::new(Timestamp(1), Timestamp(2)),
        attachments: vec![],
    }
}

#[test]
fn a_step_that_is_stopped_interrupts_its_calls_and_withdraws_their_requests() {
    for (tool, state, is_interrupted, request) in [
        ("bash", pending(), true, Some("per_1")),
        ("bash", running(), true, None),
        ("question", running(), true, Some("que_1")),
        ("plan_exit", running(), true, Some("que_1")),
        ("bash", completed(), false, None),
        ("question", completed(), false, None),
    ] {
        let part = part(tool, state);
        assert_eq!(interrupted(&part).is_some(), is_interrupted, "{part:?}");
        let id = withdrawn_request(&part).map(|event| match event {
            Event::RequestAnswered { id, .. } => id.as_str().to_owned(),
            other => panic!("{other:?}"),
        });
        assert_eq!(id.as_deref(), request, "{part:?}");
    }
}

#[test]
fn an_aborted_command_keeps_its_output() {
    let note =
        |output: &str| format!("{output}\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>");
    let input = json!({"command": "make\nall"});
    let live_output = Map::from_iter([("output".to_owned(), json!("shown\n"))]);
    let running = |metadata: Option<Map<String, Value>>| {
        let time = Span { start: Timestamp(1), end: None };
        ToolState::Running { input: input.clone(), title: None, metadata, time }
    };
    let answers =
        BTreeMap::from([("prt_1".to_owned(), Output { text: "given".to_owned(), ..Output::default() })]);
    for (tool, state, commands, want) in [
        ("bash", running(Some(live_output.clone())), answers.clone(), Some("given".to_owned())),
        ("bash", running(Some(live_output.clone())), BTreeMap::new(), Some(note("shown\n"))),
        // It never started.
        ("bash", running(None), BTreeMap::new(), None),
        ("bash", pending(), answers.clone(), None),
        ("batch", running(Some(live_output)), answers, None),
    ] {
        let part = part(tool, state);
        match (aborted(&part, &commands), want) {
            (Some(ToolState::Completed { output, title, .. }), Some(want)) => {
                assert_eq!((output.as_str(), title.as_str()), (want.as_str(), "make"), "{part:?}");
            }
            (Some(ToolState::Error { error, metadata, .. }), None) => {
                assert_eq!(
                    (error.as_str(), &metadata.unwrap()["interrupted"]),
                    ("Tool execution aborted", &json!(true))
                );
            }
            (state, want) => panic!("{part:?}: {state:?}, not {want:?}"),
        }
    }
    assert_eq!(aborted(&part("bash", completed()), &BTreeMap::new()), None);
}

#[test]
fn the_entry_of_an_answer_is_named_by_its_message() {
    let user = User {
        id: "msg_1".parse().unwrap(),
        session_id: "ses_1".parse().unwrap(),
        time: MessageTime { created: Timestamp(1), completed: None },
        agent: "build".to_owned(),
        model: ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() }.into(),
        system: None,
        tools: None,
        format: None,
        summary: None,
    };
    let message = assistant("msg_2".parse().unwrap(), &user);
    assert_eq!(answer_entry(&message), None, "the provider reported no usage");
    let tokens = Tokens { input: 7, ..Tokens::default() };
    let answered = Assistant { tokens, cost: UsdPicos(21), ..message };
    let entry = answer_entry(&answered).unwrap();
    assert_eq!((entry.id.as_str(), entry.purpose, entry.cost), ("msg_2", Purpose::Step, UsdPicos(21)));
    let summary = Assistant { summary: Some(true), ..answered };
    assert_eq!(answer_entry(&summary).unwrap().purpose, Purpose::Summary);
}

#[test]
fn the_status_of_a_retry_is_short() {
    for (message, want) in [
        (
            "p: the provider's rate limit was reached (HTTP 429): {}",
            "p: the provider's rate limit was reached",
        ),
        ("the connection broke", "the connection broke"),
    ] {
        assert_eq!(super::brief(message), want);
    }
    assert_eq!(super::brief(&"x".repeat(500)).len(), super::RETRY_TEXT_BYTES_MAX);
}
