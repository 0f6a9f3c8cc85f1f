#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::conversation::entries::tests::{step, text, tool, user};
use domain::{
    conversation::{
        message::Summary,
        part::{Patch, Snapshot, StepFinish, StepStart, Text},
    },
    money::{Tokens, UsdPicos},
};

fn begun(hash: &str) -> Body {
    Body::StepStart(StepStart { snapshot: Some(hash.to_owned()) })
}

fn over(hash: &str) -> Body {
    Body::StepFinish(StepFinish {
        reason: "stop".to_owned(),
        snapshot: Some(hash.to_owned()),
        cost: UsdPicos(0),
        tokens: Tokens::default(),
    })
}

fn patch(hash: &str) -> Body {
    Body::Patch(Patch { hash: hash.to_owned(), files: vec!["/workspace/a".to_owned()] })
}

fn told(mut entry: MessageWithParts) -> MessageWithParts {
    if let Message::User(user) = &mut entry.message {
        user.summary = Some(Summary::default());
    }
    entry
}

fn check(entries: &[MessageWithParts], want: &[(&str, &str, &str)]) {
    let found = unsummarized(entries);
    let found: Vec<_> = found.iter().map(|it| (it.user.id.as_str(), it.from, it.to)).collect();
    assert_eq!(found, want);
}

#[test]
fn a_turn_goes_from_its_first_state_to_its_last() {
    let first = step(2, 1, vec![begun("a"), over("b"), patch("a")]);
    let talk = [user(1, vec![text("x")]), first, step(3, 1, vec![begun("b"), over("b")])];
    check(&talk, &[("msg_1", "a", "b")]);
    assert_eq!((super::first_snapshot(&talk), super::last_snapshot(&talk)), (Some("a"), Some("b")));
}

#[test]
fn a_turn_that_was_told_is_told_again_only_while_it_is_the_newest() {
    let changing = |seq, parent| step(seq, parent, vec![begun("a"), over("b"), patch("a")]);
    let mut talk = vec![told(user(1, vec![text("x")])), changing(2, 1)];
    check(&talk, &[("msg_1", "a", "b")]);
    talk.extend([user(3, vec![text("y")]), changing(4, 3)]);
    check(&talk, &[("msg_3", "a", "b")]);
}

#[test]
fn what_the_loop_writes_around_a_summary_is_no_new_turn() {
    let go_on = Body::Text(Text::synthetic("Continue").marked(entries::CONTINUE, true));
    let talk = [
        user(1, vec![text("x")]),
        step(2, 1, vec![begun("a"), over("b"), patch("a")]),
        user(3, vec![go_on]),
        step(4, 3, vec![begun("b"), over("c"), patch("b")]),
    ];
    check(&talk, &[("msg_1", "a", "c")]);
}

#[test]
fn a_step_that_was_stopped_counts_and_one_that_changed_nothing_does_not() {
    let state = |hash: &str| Body::Snapshot(Snapshot { snapshot: hash.to_owned() });
    let stopped = step(2, 1, vec![begun("a"), state("b"), patch("a")]);
    check(&[user(1, vec![text("x")]), stopped], &[("msg_1", "a", "b")]);
    check(&[user(1, vec![text("x")]), step(2, 1, vec![begun("a"), over("b")])], &[]);
    let undone = step(3, 1, vec![begun("b"), over("a"), patch("b")]);
    let there_and_back =
        [user(1, vec![text("x")]), step(2, 1, vec![begun("a"), over("b"), patch("a")]), undone];
    check(&there_and_back, &[]);
}

fn may_change(parts: &[(u64, Part)]) -> bool {
    parts.iter().any(|(_, part)| part.body.as_tool().is_some())
}

fn over_without() -> Body {
    let Body::StepFinish(finish) = over("") else { unreachable!() };
    Body::StepFinish(StepFinish { snapshot: None, ..finish })
}

fn acting(seq: u64, parts: Vec<Body>) -> MessageWithParts {
    step(seq, 1, parts.into_iter().chain([tool("done", None)]).collect())
}

#[test]
fn a_step_is_unsettled_until_a_later_snapshot_tells_the_files_after_it() {
    let prompt = || user(1, vec![text("x")]);
    let unsettled_at = |entries: &[MessageWithParts]| {
        unsettled(entries, may_change).map(|step| (step.id.to_string(), step.from.map(ToOwned::to_owned)))
    };
    let acted = || acting(2, vec![begun("a"), over_without()]);
    let want = Some(("msg_2".to_owned(), Some("a".to_owned())));
    let after = |bodies: Vec<Body>| step(3, 1, bodies);
    let began_at_b = Some(("msg_2".to_owned(), Some("b".to_owned())));
    let snapshot = || Body::Snapshot(Snapshot { snapshot: "b".to_owned() });
    for (what, entries, want) in [
        ("it is the newest step", vec![prompt(), acted()], want.clone()),
        ("the next step only talks", vec![prompt(), acted(), after(vec![over_without()])], want.clone()),
        ("the next step has a snapshot", vec![prompt(), acted(), after(vec![snapshot()])], None),
        ("its end has one", vec![prompt(), acting(2, vec![begun("a"), over("b")])], None),
        (
            "it was settled later",
            vec![prompt(), acting(2, vec![begun("a"), over_without(), snapshot()])],
            None,
        ),
        (
            "only its beginning has one",
            vec![prompt(), acting(2, vec![snapshot(), over_without()])],
            began_at_b,
        ),
        ("nothing may have changed", vec![prompt(), step(2, 1, vec![begun("a"), over_without()])], None),
        ("it was stopped", vec![prompt(), acting(2, vec![begun("a")])], None),
        ("it is of an earlier turn", vec![prompt(), acted(), user(3, vec![text("y")])], None),
    ] {
        assert_eq!(unsettled_at(&entries), want, "{what}");
    }
}
