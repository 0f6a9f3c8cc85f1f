//! Answers to a fake gateway.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::tests::fake::{Fake, SESSION};
use rpc::v1::{QuestionItem, QuestionOption};

fn permission(id: &str) -> Permission {
    let (id, session_id) = (id.to_owned(), SESSION.to_owned());
    Permission {
        id,
        session_id,
        permission: "bash".to_owned(),
        patterns: vec!["ls".to_owned()],
        ..Permission::default()
    }
}

fn question(id: &str) -> Question {
    let option = |label: &str| QuestionOption { label: label.to_owned(), description: String::new() };
    let which = QuestionItem {
        question: "Which?".to_owned(),
        options: vec![option("A"), option("B")],
        multiple: true,
        ..QuestionItem::default()
    };
    let why = QuestionItem { question: "Why?".to_owned(), ..QuestionItem::default() };
    Question {
        id: id.to_owned(),
        session_id: SESSION.to_owned(),
        items: vec![which, why],
        ..Question::default()
    }
}

async fn answer(fake: &Fake, words: &[&str]) -> Result<Exit> {
    fake.run(&Output::kept(false), &[&["answer"], words].concat()).await
}

fn asking(permissions: &[&str], questions: &[&str]) -> Fake {
    let fake = Fake::default();
    let mut state = fake.0.lock().unwrap();
    state.permissions = permissions.iter().map(|id| permission(id)).collect();
    state.questions = questions.iter().map(|id| question(id)).collect();
    drop(state);
    fake
}

#[tokio::test]
async fn a_permission_is_answered_by_its_id_or_its_session() {
    for (words, want) in [
        (["per_2", "once"], "per_2 Once "),
        (["per_2", "always"], "per_2 Always "),
        (["per_2", "--reject"], "per_2 Reject "),
        (["per_2", "reject"], "per_2 Reject "),
        ([SESSION, "once"], "per_1 Once ,per_2 Once "),
    ] {
        let fake = asking(&["per_1", "per_2"], &[]);
        assert_eq!(answer(&fake, &words).await.unwrap(), Exit::Done);
        assert_eq!(fake.0.lock().unwrap().replies.join(","), want);
    }
    let fake = asking(&["per_1"], &[]);
    answer(&fake, &["per_1", "reject", "--message", "use ls"]).await.unwrap();
    assert_eq!(fake.0.lock().unwrap().replies, ["per_1 Reject use ls"]);
    assert!(answer(&fake, &["per_1", "yes"]).await.is_err());
}

#[tokio::test]
async fn a_question_takes_an_answer_for_each_thing_it_asks() {
    let fake = asking(&[], &["que_1"]);
    answer(&fake, &["que_1", "A, B", "well, because"]).await.unwrap();
    answer(&fake, &[SESSION, "--reject"]).await.unwrap();
    assert_eq!(fake.0.lock().unwrap().replies, [r#"que_1 [["A", "B"], ["well, because"]]"#, "que_1 []"]);
    let error = answer(&fake, &["que_1", "A"]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the question has 2 items; give one answer for each: que_1  Which? [A | B]; Why?"
    );
}

#[tokio::test]
async fn what_is_unclear_is_listed_and_not_answered() {
    let fake = asking(&["per_1"], &["que_1"]);
    assert!(answer(&fake, &[SESSION, "once"]).await.is_err());
    for words in [vec![], vec![SESSION], vec!["per_1"]] {
        assert_eq!(answer(&fake, &words).await.unwrap(), Exit::Done);
    }
    assert!(answer(&asking(&[], &[]), &[SESSION, "once"]).await.is_err());
    assert!(answer(&fake, &["x", "once"]).await.is_err());
    assert_eq!(fake.0.lock().unwrap().replies, [""; 0]);
}

#[tokio::test]
async fn who_comes_late_is_told_so() {
    let fake = asking(&[], &[]);
    for words in [["per_9", "once"], ["que_9", "A"]] {
        assert_eq!(answer(&fake, &words).await.unwrap(), Exit::Usage);
    }
}

#[test]
fn a_permission_to_change_files_shows_the_change() {
    let diff = |diff: &str, is_diff_cut| {
        let diff = diff.to_owned();
        Open::Permission(Permission { diff, is_diff_cut, ..permission("per_1") }).details(Paint::Plain)
    };
    assert_eq!(diff("", false), "");
    assert_eq!(diff("-one\n+two\u{1b}[2J\n", false), "    -one\n    +two\u{fffd}[2J\n");
    let longer = "    … the change is longer; `--json` shows up to 16 KiB of it\n";
    assert_eq!(diff("+one", true), format!("    +one\n{longer}"));
    let many = diff(&"+x\n".repeat(DIFF_LINES_MAX + 1), false);
    assert_eq!((many.lines().count(), many.ends_with(longer)), (DIFF_LINES_MAX + 1, true));
}

#[test]
fn a_permission_for_hosts_shows_the_reason() {
    let reason = "the tests\nneed \u{1b}[2Jit".to_owned();
    let asked = Open::Permission(Permission { reason, ..permission("per_1") });
    let shown = asked.details(Paint::Plain);
    assert!(shown.starts_with("    reason: the tests") && shown.lines().count() == 1, "{shown:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_command_holds_nothing_that_a_model_wrote() {
    let mut question = question("que_1");
    question.items[0].options[0].label = "$(rm)".to_owned();
    assert_eq!(Open::Question(question).command(), "flotilla answer que_1 \"…\" \"…\"");
    assert_eq!(Open::Permission(permission("per_1")).command(), "flotilla answer per_1 once");
}
