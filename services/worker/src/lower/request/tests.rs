use super::*;
use crate::{
    calls::permissions::Permissions,
    conversation::model_view::{CLEARED, INTERRUPTED},
    lower::step_context::StepContext,
    repository::guidance::Guidance,
};
use domain::{
    conversation::{
        message::{Error, MessageTime, ModelChoice, Path},
        part::{Ran, Span, Text, Tool, attached::File},
    },
    ids::Timestamp,
    money::{Tokens, UsdPicos},
};
use llm::request::{Message as Lowered, Source};
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
        text: INTERRUPTED.to_owned().into(),
        media: vec![],
        is_error: true,
    };
    let parts = vec![AssistantPart::text("hm"), call];
    assert_eq!(lowered, [Lowered::Assistant(parts), Lowered::ToolResults(vec![result])]);
}

#[test]
fn signed_reasoning_goes_back_only_to_its_own_model() {
    let thought = || {
        let metadata = provider_metadata(Some("sig"), None, None);
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
    let other = step(&answered, &[part(1, thought())], &model("other"));
    assert_eq!(other[0], Lowered::Assistant(vec![AssistantPart::text("hm")]), "a text to another one");
}

#[test]
fn a_text_keeps_its_identity_only_for_its_own_model() {
    let details = json!([{"type": "message", "id": "msg_1"}]);
    let metadata = provider_metadata(None, None, Some(&details));
    let body = Body::Text(Text { text: "hm".into(), metadata, ..Text::default() });
    let answered = assistant(Some("stop"), None);
    for (name, want) in [("m", Some(details)), ("other", None)] {
        let lowered = step(&answered, &[part(1, body.clone())], &model(name));
        let text = AssistantPart::Text { text: "hm".into(), details: want };
        assert_eq!(lowered[0], Lowered::Assistant(vec![text]), "{name}");
    }
}

#[test]
fn an_empty_text_still_separates_signed_reasoning() {
    let thought = |signature| {
        let metadata = provider_metadata(Some(signature), None, None);
        let time = Span { start: Timestamp(1), end: None };
        Body::Reasoning(Reasoning { text: "hm".into(), time, metadata })
    };
    let parts = [part(1, thought("a")), part(2, text("")), part(3, thought("b"))];
    let lowered = step(&assistant(Some("stop"), None), &parts, &model("m"));
    let Lowered::Assistant(words) = &lowered[0] else { panic!("{lowered:?}") };
    assert_eq!((words.len(), &words[1]), (3, &AssistantPart::text("")));
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
    assert_eq!(user::parts(&[part(1, text("do it")), part(2, ignored)]), [UserPart::Text("do it".into())]);
}

#[test]
fn media_are_shown_and_texts_are_told_elsewhere() {
    let file = |mime: &str, url: &str| {
        let (mime, filename, url) = (mime.to_owned(), Some("a".to_owned()), url.to_owned());
        Body::File(File { mime, filename, url, source: None })
    };
    let media_part = |mime: &str, data: &str| {
        let (mime, source) = (mime.to_owned(), Source::Base64(data.to_owned()));
        UserPart::Media(Media { mime, name: "a".to_owned(), source })
    };
    for (body, want) in [
        (file("image/png", "data:image/png;base64,AA=="), Some(media_part("image/png", "AA=="))),
        (file("image/png", "data:image/png,%00"), Some(media_part("image/png", "AA=="))),
        (
            file("application/pdf", "data:application/pdf;base64,AA=="),
            Some(media_part("application/pdf", "AA==")),
        ),
        (file("text/plain", "data:text/plain,a"), None),
        (file("image/png", "file:///workspace/a.png"), None),
    ] {
        assert_eq!(user::parts(&[part(1, body)]), want.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_output_that_is_left_out_is_not_sent() {
    let picture = Body::File(File {
        mime: "image/png".into(),
        filename: None,
        url: "data:image/png;base64,AA==".into(),
        source: None,
    });
    let state = |compacted| ToolState::Completed {
        input: json!({}),
        output: "long".to_owned().into(),
        title: String::new(),
        metadata: Map::new(),
        time: Ran { compacted, ..Ran::new(Timestamp(1), Timestamp(2)) },
        attachments: vec![part(1, picture.clone()).1],
    };
    let (text, media, _) = answer(&state(None));
    assert_eq!((text.as_str(), media.len()), ("long", 1));
    assert_eq!(answer(&state(Some(Timestamp(3)))), (Arc::new(CLEARED.to_owned()), vec![], false));
}

#[test]
fn the_first_block_of_the_system_prompt_is_always_the_same() {
    let prompt = |variant: Option<&str>, created| User {
        id: "msg_1".parse().expect("an id"),
        session_id: "ses_1".parse().expect("an id"),
        time: MessageTime { created: Timestamp(created), completed: None },
        agent: "build".into(),
        model: ModelChoice { model: model("m"), variant: variant.map(ToOwned::to_owned) },
        system: Some("Be brief.".into()),
        tools: None,
        format: None,
        summary: None,
    };
    let file = rpc::v1::GuidanceFile { path: "AGENTS.md".to_owned(), text: "Use tabs.".to_owned() };
    let guidance = Guidance { instructions: vec![file], ..Guidance::default() };
    let request = |user: &User, is_last| {
        let question = StepContext {
            user,
            permissions: &Permissions::default(),
            structured: None,
            is_last,
            guidance: &guidance,
            has_source: !is_last,
        };
        request(&[], &question, &llm::catalogue::find_or_default("m"))
    };
    let (first, later) = (prompt(None, 0), prompt(Some("high"), 86_400_000));
    let (one, two) = (request(&first, false), request(&later, true));
    assert_eq!((one.system.len(), &one.system[0]), (2, &two.system[0]));
    assert_ne!(one.system[1], two.system[1], "the day changes");
    let has_note = |system: &[String]| system[1].contains("flotilla project update PROJECT --repo PATH");
    assert_eq!(
        (has_note(&one.system), has_note(&two.system)),
        (false, true),
        "a session without a repository"
    );
    let of_claude = ModelRef { provider_id: "p".into(), model_id: "claude-opus-4-7".into() };
    let claude = request(&User { model: of_claude.into(), ..first.clone() }, false);
    let advice = |system: &str| system.split_once("Advice for you").expect("advice").1.to_owned();
    assert_ne!(advice(&claude.system[0]), advice(&one.system[0]), "another family of models");
    for words in ["Date: 1970-01-01", "Use tabs.", "Be brief."] {
        assert!(one.system[1].contains(words), "{words}");
    }
    assert_eq!((one.variant, two.variant), (None, Some(Effort::High)));
    assert_eq!((one.tool_choice, two.tool_choice), (ToolChoice::Auto, ToolChoice::None));
    assert!(one.messages.is_empty());
    assert!(matches!(&two.messages[..], [Lowered::User(parts)]
        if matches!(&parts[..], [UserPart::Text(text)] if text.contains("maximum steps"))));
}

#[test]
fn who_plans_is_reminded_of_it_and_who_builds_then_once_of_the_change() {
    let prompt = |seq, agent: &str| {
        let mut entry = crate::conversation::entries::tests::user(seq, vec![text("do it")]);
        if let Message::User(user) = &mut entry.message {
            agent.clone_into(&mut user.agent);
        }
        entry
    };
    let step = |seq, agent: &str| {
        let mut entry = crate::conversation::entries::tests::step(seq, seq - 1, vec![text("done")]);
        if let Message::Assistant(step) = &mut entry.message {
            agent.clone_into(&mut step.agent);
        }
        entry
    };
    let note = {
        let mut entry = prompt(9, "plan");
        entry.parts[0].1.body = Body::Text(
            Text { text: "by the way".into(), ..Text::default() }
                .marked(domain::conversation::part::NO_REPLY, true),
        );
        entry
    };
    let talk = [
        prompt(1, "build"),
        step(2, "build"),
        prompt(3, "plan"),
        step(4, "plan"),
        prompt(5, "build"),
        step(6, "build"),
        prompt(7, "build"),
        step(8, "build"),
        note,
    ];
    let Message::User(user) = &talk[6].message else { panic!("a prompt") };
    let guidance = Guidance::default();
    let permissions = Permissions::default();
    let question = StepContext {
        user,
        permissions: &permissions,
        structured: None,
        is_last: false,
        guidance: &guidance,
        has_source: true,
    };
    let request = request(&talk, &question, &llm::catalogue::find_or_default("m"));
    let reminders: Vec<&str> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            Lowered::User(parts) => Some(parts),
            Lowered::Assistant(_) | Lowered::ToolResults(_) => None,
        })
        .map(|parts| match parts.get(1) {
            Some(UserPart::Text(text)) if text.contains("You are planning") => "plans",
            Some(UserPart::Text(text)) if text.contains("Planning is over") => "builds",
            Some(other) => panic!("{other:?}"),
            None => "",
        })
        .collect();
    assert_eq!(reminders, ["", "plans", "builds", "", ""]);
}

#[test]
fn every_variant_is_an_effort_or_says_nothing() {
    for word in domain::conversation::message::VARIANTS {
        assert_eq!(word.parse::<Effort>().is_err(), word == "default", "{word}");
    }
}
