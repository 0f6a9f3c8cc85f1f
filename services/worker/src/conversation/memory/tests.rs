use super::*;
use domain::{
    conversation::{
        message::{Error, MessageTime, ModelRef, Path},
        part::{Ran, Text},
    },
    ids::{MessageId, SessionId, Timestamp},
    money::{Tokens, UsdPicos},
    session::Outcome,
};
use serde_json::json;

fn id(text: &str) -> MessageId {
    format!("msg_{text}").parse().expect("an id")
}

fn session() -> SessionId {
    "ses_1".parse().expect("an id")
}

fn model() -> ModelRef {
    ModelRef { provider_id: "p".into(), model_id: "m".into() }
}

fn user(seq: u64, name: &str) -> MessageWithParts {
    let time = MessageTime { created: Timestamp(1), completed: None };
    let user = User {
        id: id(name),
        session_id: session(),
        time,
        agent: "build".into(),
        model: model().into(),
        system: None,
        tools: None,
        format: None,
        summary: None,
    };
    MessageWithParts { seq, message: Message::User(user), parts: vec![] }
}

fn step(seq: u64, name: &str, parent: &str, finish: Option<&str>, tools: Vec<Tool>) -> MessageWithParts {
    let assistant = Assistant {
        id: id(name),
        session_id: session(),
        time: MessageTime { created: Timestamp(1), completed: finish.map(|_| Timestamp(2)) },
        parent_id: id(parent),
        model: model().into(),
        mode: "build".into(),
        agent: "build".into(),
        path: Path { cwd: "/".into(), root: "/".into() },
        cost: UsdPicos(0),
        tokens: Tokens::default(),
        finish: finish.map(ToOwned::to_owned),
        error: None,
        summary: None,
        structured: None,
    };
    let parts = (seq + 1..).zip(tools).map(|(at, tool)| {
        let part = Part {
            id: format!("prt_{at}").parse().expect("an id"),
            session_id: session(),
            message_id: id(name),
            body: Body::Tool(tool),
        };
        (at, part)
    });
    MessageWithParts { seq, parts: parts.collect(), message: Message::Assistant(Box::new(assistant)) }
}

fn tool(call_id: &str, output: Option<&str>) -> Tool {
    let input = json!({"command": "true"});
    let state = match output {
        None => ToolState::Pending { input, raw: String::new() },
        Some(output) => ToolState::Completed {
            input,
            output: output.to_owned().into(),
            title: String::new(),
            metadata: serde_json::Map::new(),
            time: Ran::new(Timestamp(1), Timestamp(2)),
            attachments: vec![],
        },
    };
    Tool { call_id: call_id.into(), tool: "bash".into(), state }
}

fn pending(seq: u64, kind: Kind, message: Option<&str>) -> MailboxInput {
    MailboxInput {
        seq,
        kind,
        dedupe: String::new(),
        message_id: message.map(id),
        body: None,
        traceparent: None,
    }
}

fn conversation(entries: Vec<MessageWithParts>) -> Conversation {
    let mut conversation = Conversation::default();
    conversation.extend(entries);
    conversation
}

#[test]
fn the_size_of_a_conversation_follows_its_parts() {
    let mut talk = conversation(vec![user(1, "u"), step(2, "a", "u", None, vec![tool("c", None)])]);
    let before = talk.bytes;
    assert!(before > 0 && !talk.is_heavy());
    let message_id = talk.entries[1].message.id().clone();
    let text = |bytes: usize| {
        let body = Body::Text(Text { text: "x".repeat(bytes), ..Text::default() });
        let (id, session_id) = ("prt_text".parse().unwrap(), "ses_1".parse().unwrap());
        let part = Part { id, session_id, message_id: message_id.clone(), body };
        Event::PartUpdated { part: Box::new(part), at: Timestamp(1) }
    };
    for bytes in [10, HEAVY_BYTES, 20] {
        talk.apply(&text(bytes), 3);
        assert_eq!((talk.bytes, talk.is_heavy()), (before + bytes, bytes == HEAVY_BYTES));
    }
    talk.apply(&Event::MessageRemoved(message_id.clone()), 4);
    assert_eq!(talk.bytes, conversation(vec![user(1, "u")]).bytes);
}

#[test]
fn only_a_call_asks_for_another_step_whatever_the_model_says() {
    for finish in ["stop", "tool-calls", "other", "unknown", "moon_phase"] {
        let talk = |tools| conversation(vec![user(1, "u"), step(2, "a", "u", Some(finish), tools)]);
        let last = talk(vec![tool("c", None)]).view(&[], false).last.expect("a step");
        assert!(last.continues && last.answered, "{finish}");
        assert_eq!(last.open, ["c"]);
        let last = talk(vec![]).view(&[], false).last.expect("a step");
        assert!(!last.continues && last.answered, "{finish}");
    }
}

#[test]
fn an_abort_concerns_only_what_was_accepted_before_it() {
    let talk = conversation(vec![user(1, "u"), user(2, "v")]);
    let inputs = [
        pending(1, Kind::Prompt, Some("u")),
        pending(2, Kind::Abort, None),
        pending(3, Kind::Prompt, Some("v")),
    ];
    assert_eq!(talk.view(&inputs, false).newest_user, Some(id("u")));
    assert!(talk.view(&inputs, false).aborted);
    assert_eq!(talk.view(&[], false).newest_user, Some(id("v")));
}

#[test]
fn only_calls_of_this_turn_with_the_same_answer_count_as_a_loop() {
    let same = |seq, name: &str| step(seq, name, "u", Some("tool-calls"), vec![tool("c", Some("x"))]);
    let before = step(2, "z", "t", Some("tool-calls"), vec![tool("c", Some("x"))]);
    let talk = conversation(vec![before, user(3, "u"), same(4, "a"), same(6, "b")]);
    assert_eq!(talk.view(&[], false).repeated_calls, 2);
    let other = step(8, "c", "u", Some("tool-calls"), vec![tool("c", Some("y"))]);
    let talk = conversation(vec![user(3, "u"), same(4, "a"), same(6, "b"), other]);
    assert_eq!(talk.view(&[], false).repeated_calls, 1, "another answer is progress");
}

#[test]
fn calls_that_were_cut_off_count_as_a_loop_wherever_they_were_cut() {
    let cut = |seq, name: &str, input: serde_json::Value| {
        let time = domain::conversation::part::Span { start: Timestamp(1), end: Some(Timestamp(2)) };
        let state = ToolState::Error { input, error: "cut off".into(), metadata: None, time };
        let tool = Tool { call_id: "c".into(), tool: "write".into(), state };
        step(seq, name, "u", Some("length"), vec![tool])
    };
    let raw = |raw: &str| json!({marks::UNREADABLE: raw});
    let repeated = |inputs: [serde_json::Value; 2]| {
        let steps =
            (4..).step_by(2).zip(["a", "b"]).zip(inputs).map(|((seq, name), input)| cut(seq, name, input));
        conversation(std::iter::once(user(3, "u")).chain(steps).collect()).view(&[], false).repeated_calls
    };
    assert_eq!(repeated([raw("{\"a"), raw("{\"ab")]), 2);
    assert_eq!(repeated([json!({"arguments": raw("{")}), json!({"arguments": raw("")})]), 2);
    assert_eq!(repeated([json!({"a": 1}), json!({"a": 2})]), 1, "arguments that can be compared");
}

#[test]
fn calls_before_a_person_let_the_model_go_on_do_not_count_as_a_loop() {
    let same = |seq, name: &str, mark: Option<Repetition>| {
        let mut tool = tool("c", Some("x"));
        if let Some(mark) = mark {
            tool.state = marks::with_mark(tool.state, mark);
        }
        step(seq, name, "u", Some("tool-calls"), vec![tool])
    };
    let repeated = |marks: &[Option<Repetition>]| {
        let steps = (4..).step_by(2).zip(["a", "b", "c", "d"]).zip(marks);
        let steps = steps.map(|((seq, name), mark)| same(seq, name, *mark));
        conversation(std::iter::once(user(3, "u")).chain(steps).collect()).view(&[], false).repeated_calls
    };
    assert_eq!(repeated(&[None, None, Some(Repetition::Pending)]), 3);
    assert_eq!(repeated(&[None, None, Some(Repetition::Allowed)]), 0);
    assert_eq!(repeated(&[None, None, Some(Repetition::Allowed), None]), 1);
}

#[test]
fn an_errored_step_says_how_it_failed() {
    let mut entry = step(2, "a", "u", None, vec![tool("c", None)]);
    if let Message::Assistant(assistant) = &mut entry.message {
        assistant.error = Some(Error::aborted());
    }
    let last = conversation(vec![user(1, "u"), entry]).view(&[], false).last.expect("a step");
    assert_eq!((last.failed, last.open.len()), (Some(Outcome::Aborted), 0));
}

#[test]
fn what_was_loaded_twice_is_kept_once() {
    let mut talk = conversation(vec![user(5, "v"), user(1, "u")]);
    talk.extend(vec![user(5, "v")]);
    assert_eq!(talk.entries().len(), 2);
    assert_eq!(talk.read_to, 5);
}

#[test]
fn a_prompt_that_came_before_the_loops_own_message_is_still_new() {
    let mut talk = conversation(vec![user(1, "u"), step(9, "a", "u", Some("stop"), vec![])]);
    assert_eq!(talk.read_to, 1, "what is asked for includes what came before the step's message");
    talk.extend(vec![user(5, "v"), step(9, "a", "u", Some("stop"), vec![])]);
    assert_eq!(talk.entries().len(), 3);
    let view = talk.view(&[], false);
    assert_eq!(view.newest_user, Some(id("v")));
    assert_eq!(view.last.expect("a step").parent, id("u"), "the step answers the older prompt");
}
