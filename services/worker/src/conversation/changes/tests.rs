#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
use super::*;
use crate::conversation::entries::tests::{step, text, user};
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
