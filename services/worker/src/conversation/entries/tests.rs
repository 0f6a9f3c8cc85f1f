#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::conversation::{prune, summary};
use domain::{
    conversation::{
        context::Window,
        message::{Error, MessageTime, ModelRef, Path},
        part::{Ran, Tool, attached::Subtask},
    },
    ids::Timestamp,
    money::{Tokens, UsdPicos},
};
use serde_json::json;

const WINDOW: Window = Window {
    context_tokens: 100_000,
    input_tokens: None,
    output_tokens: 8_000,
    reserved_tokens: None,
    tail_tokens: None,
    tail_turns: None,
};

fn id(seq: u64) -> MessageId {
    format!("msg_{seq}").parse().unwrap()
}

fn parts(seq: u64, bodies: Vec<Body>) -> Vec<(u64, Part)> {
    let part = |(at, body)| {
        let part = Part {
            id: format!("prt_{at}").parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            message_id: id(seq),
            body,
        };
        (at, part)
    };
    (seq * 10..).zip(bodies).map(part).collect()
}

pub(crate) fn text(words: &str) -> Body {
    Body::Text(Text { text: words.to_owned(), ..Text::default() })
}

pub(crate) fn user(seq: u64, bodies: Vec<Body>) -> MessageWithParts {
    let user = User {
        id: id(seq),
        session_id: "ses_1".parse().unwrap(),
        time: MessageTime { created: Timestamp(1), completed: None },
        agent: "build".to_owned(),
        model: ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() }.into(),
        system: None,
        tools: None,
        format: None,
        summary: None,
    };
    MessageWithParts { seq, message: Message::User(user), parts: parts(seq, bodies) }
}

pub(crate) fn step(seq: u64, parent: u64, bodies: Vec<Body>) -> MessageWithParts {
    let step = Assistant {
        id: id(seq),
        session_id: "ses_1".parse().unwrap(),
        time: MessageTime { created: Timestamp(1), completed: Some(Timestamp(2)) },
        parent_id: id(parent),
        model: ModelRef { provider_id: "p".to_owned(), model_id: "m".to_owned() }.into(),
        mode: "build".to_owned(),
        agent: "build".to_owned(),
        path: Path { cwd: "/".to_owned(), root: "/".to_owned() },
        cost: UsdPicos(0),
        tokens: Tokens::default(),
        finish: Some("stop".to_owned()),
        error: None,
        summary: None,
        structured: None,
    };
    MessageWithParts { seq, message: Message::Assistant(Box::new(step)), parts: parts(seq, bodies) }
}

fn failed(seq: u64, parent: u64, error: Error) -> MessageWithParts {
    let mut entry = step(seq, parent, vec![]);
    if let Message::Assistant(step) = &mut entry.message {
        (step.finish, step.error) = (None, Some(error));
    }
    entry
}

fn summary(seq: u64, parent: u64) -> MessageWithParts {
    let mut entry = step(seq, parent, vec![text("the summary")]);
    if let Message::Assistant(step) = &mut entry.message {
        step.summary = Some(true);
    }
    entry
}

fn wish(seq: u64, overflow: bool, tail: Option<u64>) -> MessageWithParts {
    let wish = Compaction { auto: true, overflow: Some(overflow), tail_start_id: tail.map(id) };
    user(seq, vec![Body::Compaction(wish)])
}

pub(crate) fn tool(output: &str, compacted: Option<i64>) -> Body {
    let state = ToolState::Completed {
        input: json!({}),
        output: output.to_owned().into(),
        title: String::new(),
        metadata: serde_json::Map::new(),
        time: Ran { compacted: compacted.map(Timestamp), ..Ran::new(Timestamp(1), Timestamp(2)) },
        attachments: vec![],
    };
    Body::Tool(Tool { call_id: "c".to_owned(), tool: "bash".to_owned(), state })
}

fn seqs(entries: &[&MessageWithParts]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

#[test]
fn a_summary_stands_before_the_tail_and_what_came_later() {
    let talk = |tail| {
        vec![
            user(1, vec![text("a")]),
            step(2, 1, vec![text("b")]),
            user(3, vec![text("c")]),
            step(4, 3, vec![text("d")]),
            wish(5, false, tail),
            user(6, vec![text("meanwhile")]),
            summary(7, 5),
            user(8, vec![text("e")]),
        ]
    };
    assert_eq!(seqs(&visible(&talk(Some(3)))), [5, 7, 3, 4, 6, 8]);
    assert_eq!(seqs(&visible(&talk(None))), [5, 7, 6, 8]);
    assert_eq!(seqs(&visible(&talk(Some(99)))), [5, 7, 6, 8], "a tail that is gone");
    assert_eq!(steps_since_summary(&talk(None)), Some(0));
    let unfinished = |entry| {
        let mut talk = talk(Some(3));
        talk[6] = entry;
        talk
    };
    let open = {
        let mut entry = summary(7, 5);
        if let Message::Assistant(step) = &mut entry.message {
            step.finish = None;
        }
        entry
    };
    let all = [1, 2, 3, 4, 6, 8];
    assert_eq!(
        seqs(&visible(&unfinished(open.clone()))),
        all,
        "a summary that is not whole counts for nothing"
    );
    assert_eq!(due(&unfinished(open)), Due::Summary, "and is written again");
    let mut broken = summary(7, 5);
    if let Message::Assistant(step) = &mut broken.message {
        step.error = Some(Error::new("APIError", "no"));
    }
    assert_eq!(
        (seqs(&visible(&unfinished(broken.clone()))), due(&unfinished(broken))),
        (all.to_vec(), Due::Nothing)
    );
}

#[test]
fn a_second_summary_brings_the_first_up_to_date_and_keeps_no_part_of_it() {
    let long = "x".repeat(80_000);
    let talk = vec![
        user(1, vec![text("a")]),
        step(2, 1, vec![text("b")]),
        wish(3, false, Some(1)),
        summary(4, 3),
        user(5, vec![text(&long)]),
        step(6, 5, vec![text("d")]),
        user(7, vec![text("e")]),
        wish(8, false, None),
    ];
    let plan = summary::Plan::new(&talk, &id(8), &WINDOW);
    assert_eq!(plan.tail_start_id, Some(id(7)), "the newest turn fits, the one before does not");
    let MessageWithParts { message: Message::User(prompt), .. } = &talk[7] else { panic!("a prompt") };
    let request = plan.request(prompt, &WINDOW);
    let llm::request::Message::User(parts) = &request.messages[0] else { panic!("a question") };
    let llm::request::UserPart::Text(question) = &parts[0] else { panic!("a text") };
    assert!(
        question.starts_with("<earlier-summary>\nthe summary\n</earlier-summary>"),
        "{}",
        &question[..80]
    );
    for (words, is_in) in [("[Person]: a\n", true), ("[Agent]: d\n", true), ("[Person]: e\n", false)] {
        assert_eq!(question.contains(words), is_in, "{words}");
    }
    for heading in ["Objective", "Important Details", "Work State", "Next Move", "Relevant Files"] {
        assert!(question.contains(&format!("## {heading}")), "{heading}");
    }
    assert!(request.tools.is_empty());
}

#[test]
fn long_outputs_are_cut_for_a_summary_and_old_ones_left_out() {
    let talk = vec![
        user(1, vec![text("a")]),
        step(2, 1, vec![tool(&"é".repeat(3_000), None), tool("old", Some(1))]),
        failed(3, 1, Error::new("APIError", "no")),
        wish(4, false, None),
    ];
    let MessageWithParts { message: Message::User(prompt), .. } = &talk[3] else { panic!("a prompt") };
    let request = summary::Plan::new(&talk, &id(4), &WINDOW).request(prompt, &WINDOW);
    let messages = format!("{:?}", request.messages);
    assert!(
        messages.contains("[cut: 2000 of 6000 bytes]")
            && messages.contains(crate::conversation::model_view::CLEARED),
        "{messages}"
    );
    assert!(!messages.contains("old"));
}

#[test]
fn a_refused_prompt_is_repeated_unless_it_stands_alone() {
    let refused = || failed(4, 3, Error::overflow("long"));
    let talk =
        |before: Vec<MessageWithParts>| before.into_iter().chain([user(3, vec![text("c")]), refused()]);
    let with_wish = |before, overflow| talk(before).chain([wish(5, overflow, None)]).collect::<Vec<_>>();
    let before = || vec![user(1, vec![text("a")]), step(2, 1, vec![text("b")])];
    let all = with_wish(before(), true);
    assert_eq!(repeated_prompt(&all, 4), Some(2));
    assert_eq!(summary::Plan::new(&all, &id(5), &WINDOW).tail_start_id, None);
    assert_eq!(repeated_prompt(&with_wish(before(), false), 4), None, "no model refused it");
    assert_eq!(repeated_prompt(&with_wish(vec![], true), 2), None, "there is nothing else to sum up");
    let bodies = summary::repeated_parts(&parts(9, vec![text("c")]));
    let replay = user(9, bodies);
    assert_eq!(origin(&replay.parts), Origin::Loop);
}

#[test]
fn notes_behind_a_refused_prompt_are_summed_up_and_the_prompt_is_repeated() {
    let note = |seq, words: &str| {
        user(seq, vec![Body::Text(Text { text: words.to_owned(), ..Text::default() }.marked(NO_REPLY, true))])
    };
    let talk = [
        user(1, vec![text("a")]),
        step(2, 1, vec![text("b")]),
        user(3, vec![text("the long prompt")]),
        note(4, "an early note"),
        failed(5, 3, Error::overflow("long")),
        note(6, "a late note"),
        wish(7, true, None),
    ];
    assert_eq!(repeated_prompt(&talk, 6), Some(2));
    let Message::User(request) = &talk[6].message else { panic!("a request") };
    let plan = summary::Plan::new(&talk, &id(7), &WINDOW);
    let messages = format!("{:?}", plan.request(request, &WINDOW).messages);
    assert!(messages.contains("an early note") && messages.contains("a late note"), "{messages}");
    assert!(!messages.contains("the long prompt") && plan.tail_start_id.is_none(), "{messages}");
}

#[test]
fn only_tasks_that_nobody_answered_are_due() {
    let task = || {
        Body::Subtask(Subtask {
            prompt: "p".to_owned(),
            description: "d".to_owned(),
            agent: "general".to_owned(),
            model: None,
            command: None,
        })
    };
    let mut talk = vec![user(1, vec![task()]), user(2, vec![text("b")])];
    assert_eq!((due(&talk), prompt_calls(&talk).count()), (Due::Calls, 1), "also one of a queued prompt");
    talk.push(step(3, 2, vec![]));
    assert_eq!(due(&talk), Due::Nothing);
    talk.push(failed(4, 3, Error::aborted()));
    assert_eq!(due(&talk), Due::Nothing);
}

#[test]
fn old_outputs_are_left_out_and_the_last_turns_kept() {
    let big = |tokens: usize| tool(&"x".repeat(tokens * 4), None);
    let talk = |old: Vec<Body>| {
        vec![
            user(1, vec![text("a")]),
            step(2, 1, old),
            user(3, vec![text("b")]),
            step(4, 3, vec![big(90_000)]),
            user(5, vec![text("c")]),
            step(6, 5, vec![big(90_000)]),
        ]
    };
    let pruned = |old| {
        let parts = prune::pruned(&talk(old), Timestamp(7));
        parts.into_iter().map(|part| part.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(pruned(vec![big(21_000), big(1_000), big(40_000)]), ["prt_21", "prt_20"]);
    let skill = |tokens: usize| {
        let mut body = big(tokens);
        if let Body::Tool(call) = &mut body {
            call.tool = "skill".to_owned();
        }
        body
    };
    let around = vec![big(21_000), skill(90_000), big(1_000), big(40_000)];
    assert_eq!(pruned(around), ["prt_22", "prt_20"], "a skill is neither cleared nor counted");
    assert_eq!(
        pruned(vec![big(10_000), skill(90_000), big(40_000)]),
        [""; 0],
        "too little without the skill"
    );
    assert_eq!(pruned(vec![big(10_000), big(40_000)]), [""; 0], "too little");
    assert_eq!(pruned(vec![big(90_000), tool("gone", Some(1)), big(40_000)]), [""; 0], "it was looked at");
    let parts = prune::pruned(&talk(vec![big(61_000)]), Timestamp(7));
    let Body::Tool(Tool { state: ToolState::Completed { output, time, .. }, .. }) = &parts[0].body else {
        panic!("a call")
    };
    assert_eq!((output.len(), time.compacted), (244_000, Some(Timestamp(7))), "the output stays readable");
}
