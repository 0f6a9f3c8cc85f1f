//! Waits in words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use rpc::v1::{Permission, Question, QuestionItem};
use serde_json::json;

const NOW_MS: i64 = 1_000_000_000;

fn session(id: &str, state: SessionState, wait: Option<Wait>) -> Session {
    let mut session = Session { id: id.to_owned(), title: "find out".to_owned(), ..Session::default() };
    session.set_state(state);
    session.waiting_reason = wait.as_ref().map(|wait| wait.reason.clone()).unwrap_or_default();
    session.queue_position = wait.as_ref().map_or(0, |wait| wait.position);
    session.wait = wait;
    session
}

fn wait(reason: &str, sentence: &str) -> Wait {
    Wait { reason: reason.to_owned(), sentence: sentence.to_owned(), ..Wait::default() }
}

fn check(why: &Why, expected: &str) {
    assert_eq!(to_text(why, NOW_MS), expected);
}

#[test]
fn a_queued_session_says_its_limit_its_place_and_its_time() {
    let wait = Wait {
        used: 20,
        max: 20,
        position: 3,
        eta_ms: NOW_MS + 40_400,
        queued_at_ms: NOW_MS - 61_000,
        ..wait("tenant_running", "the tenant runs 20 sessions of 20")
    };
    let mut why = Why { session: session("ses_1", SessionState::Queued, Some(wait)), ..Why::default() };
    check(
        &why,
        "ses_1  queued (3)
  the tenant runs 20 sessions of 20
  queued since 1 min
  continues in about 40 s
",
    );
    let wait = why.session.wait.as_mut().unwrap();
    (wait.eta_ms, wait.queued_at_ms, wait.sentence) = (NOW_MS - 1, 0, "it is full".to_owned());
    check(&why, "ses_1  queued (3)\n  it is full (20 of 20)\n  continues at any moment\n");
}

#[test]
fn who_asks_people_says_how_to_answer() {
    let permission = Permission {
        id: "per_1".to_owned(),
        session_id: "ses_1".to_owned(),
        permission: "bash".to_owned(),
        patterns: vec!["rm -r\nx".to_owned()],
        ..Permission::default()
    };
    let item = QuestionItem { question: "Which one?".to_owned(), ..QuestionItem::default() };
    let (id, session_id) = ("que_1".to_owned(), "ses_1".to_owned());
    let question = Question { id, session_id, items: vec![item], ..Question::default() };
    let wait = Wait { eta_ms: NOW_MS + 7_200_000, ..wait("permission", "a person must allow it") };
    let why = Why {
        session: session("ses_1", SessionState::Waiting, Some(wait)),
        open: vec![Open::Permission(permission), Open::Question(question)],
        children: vec![],
    };
    check(
        &why,
        "ses_1  waiting: permission
  a person must allow it
  counts as refused in about 2 h
  per_1  allow bash rm -r⏎ x
    flotilla answer per_1 once
  que_1  Which one?
    flotilla answer que_1 \"…\"
",
    );
    let json = to_json(&why);
    assert_eq!(
        (&json["wait"]["reason"], &json["requests"][1]["id"]),
        (&json!("permission"), &json!("que_1"))
    );
}

#[test]
fn who_waits_for_subtasks_lists_them() {
    let wait = Wait { used: 1, max: 2, ..wait("children", "1 of 2 subtasks are over") };
    let asks = session("ses_2", SessionState::Waiting, Some(self::wait("permission", "")));
    let why = Why {
        session: session("ses_1", SessionState::Waiting, Some(wait)),
        children: vec![asks, session("ses_3", SessionState::Running, None)],
        open: vec![],
    };
    check(
        &why,
        "ses_1  waiting: children
  1 of 2 subtasks are over
  ses_2  waiting: permission  find out
  ses_3  running  find out
",
    );
    let many = (0..25).map(|_| session("ses_2", SessionState::Idle, None)).collect();
    let text = to_text(&Why { children: many, ..why }, NOW_MS);
    assert!(text.ends_with("  … and 5 more\n"), "{text}");
}

#[test]
fn who_waits_for_subtasks_says_which_of_them_asks_and_how_to_answer() {
    let wait = wait("children", "0 of 1 subtasks are over; a person must answer one");
    let permission = Permission {
        id: "per_1".to_owned(),
        session_id: "ses_3".to_owned(),
        permission: "bash".to_owned(),
        patterns: vec!["ls".to_owned()],
        ..Permission::default()
    };
    let why = Why {
        session: session("ses_1", SessionState::Waiting, Some(wait)),
        children: vec![session("ses_2", SessionState::Running, None)],
        open: vec![Open::Permission(permission)],
    };
    check(
        &why,
        "ses_1  waiting: children
  0 of 1 subtasks are over; a person must answer one
  subtask ses_3 asks: per_1  allow bash ls
    flotilla answer per_1 once
  ses_2  running  find out
",
    );
}

#[test]
fn a_quarantined_session_names_its_way_out_and_others_wait_for_nothing() {
    let wait = wait("quarantined", "an operator must release it: its loop ended 5 times");
    let quarantined = session("ses_1", SessionState::Quarantined, Some(wait));
    check(
        &Why { session: quarantined, ..Why::default() },
        "ses_1  quarantined
  an operator must release it: its loop ended 5 times
  an operator can release it: flotilla admin release ses_1
",
    );
    let running = Why { session: session("ses_1", SessionState::Running, None), ..Why::default() };
    check(&running, "ses_1  running\n  it is not waiting\n");
    assert_eq!(to_json(&running)["wait"], Value::Null);
}
