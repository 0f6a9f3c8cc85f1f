#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::{
    money::UsdPicos,
    pull_request::{request::CommentKind, shown::CheckState, view::ChangedLines},
    session::Outcome,
};
use proptest::prelude::*;

const SESSION: &str = "ses_1";

fn request(id: u64) -> OpenRequest {
    OpenRequest::new(CommentId { kind: CommentKind::Comment, id }, "ann", "\n fix it \nplease")
}

fn asked(id: u64) -> ThreadInput {
    ThreadInput::Requested { request: request(id) }
}

fn view(state: SessionState) -> SessionView {
    SessionView { state, answer_id: String::new(), answer: String::new(), cost: UsdPicos(0), changes: None }
}

fn done(answer: &str, has_changes: bool) -> SessionView {
    SessionView {
        answer_id: answer.to_owned(),
        answer: format!("I did {answer}."),
        changes: has_changes.then_some(ChangedLines { files: 1, additions: 2, deletions: 3 }),
        ..view(SessionState::Ended { outcome: Outcome::Done, error: String::new() })
    }
}

/// A forge that does everything.
#[derive(Default)]
struct Forge {
    acknowledged: Vec<CommentId>,
    comments: Vec<String>,
    pushes: u32,
    pull_requests: Vec<(String, String)>,
    checks: Vec<ShownCheck>,
}

impl Forge {
    fn perform(&mut self, action: &Action) -> ActionOutcome {
        match action.clone() {
            Action::Acknowledge(comment) => {
                self.acknowledged.push(comment);
                ActionOutcome::Acknowledged
            }
            Action::ShowState { comment: None, text } => {
                self.comments.push(text.clone());
                ActionOutcome::StateShown { comment: self.comments.len() as u64, text }
            }
            Action::ShowState { comment: Some(comment), text } => {
                self.comments[usize::try_from(comment).unwrap() - 1].clone_from(&text);
                ActionOutcome::StateShown { comment, text }
            }
            Action::Publish { .. } => {
                self.pushes += 1;
                ActionOutcome::Published(Some(format!("c{}", self.pushes)))
            }
            Action::OpenPullRequest { head, title, .. } => {
                self.pull_requests.push((head, title));
                ActionOutcome::Opened { number: 8 }
            }
            Action::ShowCheck(check) => {
                self.checks.push(check.clone());
                let id = check.id.or(Some(self.checks.len() as u64));
                ActionOutcome::CheckShown(ShownCheck { id, ..check })
            }
            Action::Rest => panic!("a rest is no action"),
        }
    }

    /// Performs actions until the thread rests.
    fn settle(&mut self, thread: &mut Thread, view: &SessionView) {
        for _ in 0..100 {
            let action = thread.next(view, SESSION);
            if action == Action::Rest {
                return;
            }
            let done = self.perform(&action);
            thread.apply(&action, done, view);
        }
        panic!("the thread never rests: {:?}", thread.next(view, SESSION));
    }
}

#[test]
fn a_request_becomes_a_pull_request_and_one_comment_tells_it() {
    let (mut thread, mut forge) = (Thread::new(Subject::sample()), Forge::default());
    thread.take(asked(1));
    thread.take(asked(1));
    forge.settle(&mut thread, &view(SessionState::Queued { position: 3 }));
    assert_eq!(forge.acknowledged.len(), 1);
    assert!(
        forge.comments[0].contains("position 3") && forge.comments[0].contains("fix it"),
        "{:?}",
        forge.comments
    );
    forge.settle(&mut thread, &view(SessionState::Working));
    forge.settle(&mut thread, &done("m1", true));
    assert_eq!(
        forge.pull_requests,
        [("flotilla/7-the-flaky-test-fails".to_owned(), "The flaky test fails!".to_owned())]
    );
    assert!(forge.comments[0].contains("The work is in #8"), "{:?}", forge.comments);
    assert_eq!(forge.checks.last().unwrap().state, CheckState::Success);

    // A second request goes on with the same branch, pull request, comment and check.
    thread.take(asked(2));
    forge.settle(&mut thread, &view(SessionState::Working));
    assert_eq!(forge.checks.last().unwrap().state, CheckState::InProgress);
    forge.settle(&mut thread, &done("m2", true));
    assert_eq!((forge.pushes, forge.pull_requests.len(), forge.comments.len()), (2, 1, 1));
    assert_eq!(forge.checks.last().unwrap().commit, "c2");
    assert_eq!(thread.pull_request(), Some(8));
}

#[test]
fn an_answer_without_changes_is_only_shown() {
    let (mut thread, mut forge) = (Thread::new(Subject::sample()), Forge::default());
    thread.take(asked(1));
    forge.settle(&mut thread, &done("m1", false));
    assert_eq!((forge.pushes, forge.checks.len()), (0, 0));
    assert!(forge.comments[0].contains("```text\nI did m1.\n```"), "{:?}", forge.comments);
}

#[test]
fn every_end_is_shown() {
    let ended = |outcome| SessionState::Ended { outcome, error: "The model refused.".to_owned() };
    for (state, words) in [
        (ended(Outcome::Failed), "The model refused."),
        (ended(Outcome::NeedsHuman), "needs a person"),
        (ended(Outcome::Aborted), "Somebody stopped it."),
        (SessionState::Quarantined, "waits for an operator"),
        (SessionState::Deleted, "was deleted"),
        (
            SessionState::Waiting { reason: "permission".to_owned(), sentence: String::new() },
            "It waits: permission.",
        ),
    ] {
        let (mut thread, mut forge) = (Thread::new(Subject::sample()), Forge::default());
        thread.take(asked(1));
        let changed = SessionView { changes: done("", true).changes, ..view(state.clone()) };
        forge.settle(&mut thread, &changed);
        assert!(
            forge.comments[0].contains(words) && forge.comments[0].contains(state.code()),
            "{:?}",
            forge.comments
        );
        assert_eq!(forge.pushes, 0, "{state:?} publishes nothing");
    }
}

#[test]
fn work_is_done_only_when_people_can_see_it() {
    let mut thread = Thread::new(Subject::sample());
    thread.take(asked(1));
    let (mut forge, view) = (Forge::default(), done("m1", true));
    let mut told = vec![];
    loop {
        let action = thread.next(&view, SESSION);
        if let Action::ShowState { text, .. } = &action {
            told.push(text.lines().nth(1).unwrap().to_owned());
        }
        if action == Action::Rest {
            break;
        }
        let outcome = forge.perform(&action);
        thread.apply(&action, outcome, &view);
    }
    assert_eq!(told, ["**Flotilla: publishing**", "**Flotilla: done**"]);
}

#[test]
fn a_refused_publication_is_told_and_not_repeated() {
    let mut thread = Thread::new(Subject::sample());
    thread.take(asked(1));
    let mut forge = Forge::default();
    forge.settle(&mut thread, &view(SessionState::Working));
    let view = done("m1", true);
    let action = thread.next(&view, SESSION);
    assert!(matches!(action, Action::Publish { .. }), "{action:?}");
    thread.apply(&action, ActionOutcome::Refused("push_path_refused: .github/x".to_owned()), &view);
    forge.settle(&mut thread, &view);
    assert_eq!(forge.pushes, 0);
    for words in ["**Flotilla: not_published**", "could not be published", ".github/x"] {
        assert!(forge.comments[0].contains(words), "{words}: {:?}", forge.comments);
    }
    // The next answer is published again.
    forge.settle(&mut thread, &done("m2", true));
    assert_eq!(forge.pushes, 1);
    assert!(!forge.comments[0].contains("could not be published"), "{:?}", forge.comments);
}

#[test]
fn a_deleted_comment_is_written_again_but_not_for_ever() {
    let mut thread = Thread::new(Subject::sample());
    thread.take(asked(1));
    let mut forge = Forge::default();
    let (working, ended) = (view(SessionState::Working), done("m1", false));
    forge.settle(&mut thread, &working);
    for round in 0..10 {
        let view = if round % 2 == 0 { &ended } else { &working };
        let action = thread.next(view, SESSION);
        if let Action::ShowState { comment: Some(_), .. } = action {
            thread.apply(&action, ActionOutcome::CommentGone, view);
        }
        forge.settle(&mut thread, view);
    }
    assert_eq!(forge.comments.len(), COMMENTS_MAX as usize);
}

#[test]
fn a_model_cannot_write_outside_of_its_block() {
    let mut thread = Thread::new(Subject { title: "@bob [x](http://evil)".to_owned(), ..Subject::sample() });
    thread.take(asked(1));
    let evil = "```\n@everyone ![x](http://evil/leak) <img src=x>\n```text";
    let view = SessionView { answer: evil.to_owned(), ..done("m1", true) };
    let text = thread.facts(&view, SESSION).state_text();
    let outside: Vec<_> = text.split("````").step_by(2).collect();
    assert!(text.contains(evil) && outside.iter().all(|part| !part.contains("evil")), "{text}");
    assert!(!thread.facts(&view, SESSION).title().contains('@'));
}

#[test]
fn a_title_becomes_a_branch() {
    for (title, want) in [
        ("The flaky test fails!", "the-flaky-test-fails"),
        ("", "work"),
        ("日本語", "work"),
        ("--a//b..c@{d}--", "a-b-c-d"),
        (&"x".repeat(100), &"x".repeat(SLUG_CHARS_MAX)),
    ] {
        assert_eq!(slug(title), want);
    }
}

fn any_view() -> impl Strategy<Value = SessionView> {
    let outcome =
        prop::sample::select(vec![Outcome::Done, Outcome::Failed, Outcome::Aborted, Outcome::NeedsHuman]);
    let ended = outcome.prop_map(|outcome| SessionState::Ended { outcome, error: String::new() });
    let state = prop_oneof![
        (0..5_u32).prop_map(|position| SessionState::Queued { position }),
        Just(SessionState::Working),
        ended,
        Just(SessionState::Quarantined),
        Just(SessionState::Deleted),
    ];
    (state, 0..4_u8, any::<bool>()).prop_map(|(state, answer, has_changes)| SessionView {
        state,
        ..done(&format!("m{answer}"), has_changes)
    })
}

proptest! {
    /// Whatever the forge answers, and wherever the job dies and reads its row again, the thread comes to rest, has one pull request and never more comments than
    /// its bound.
    #[test]
    fn a_thread_comes_to_rest(steps in prop::collection::vec((any_view(), 0..6_u64, 0..5_u8), 1..30)) {
        let (mut thread, mut forge) = (Thread::new(Subject::sample()), Forge::default());
        for (view, id, fault) in steps {
            thread.take(asked(id));
            for _ in 0..fault {
                let action = thread.next(&view, SESSION);
                if action == Action::Rest {
                    break;
                }
                let lost = forge.perform(&action);
                match fault {
                    // The job died before it stored the outcome. The forge finds the comment and the pull request that exist.
                    1 | 2 => match lost {
                        ActionOutcome::StateShown { .. } if matches!(action, Action::ShowState { comment: None, .. }) => { forge.comments.pop(); }
                        ActionOutcome::Opened { .. } => { forge.pull_requests.pop(); }
                        _ => {}
                    },
                    _ => thread.apply(&action, ActionOutcome::Refused("no".to_owned()), &view),
                }
                let text = serde_json::to_string(&thread).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Thread>(&text).unwrap(), &thread);
            }
            forge.settle(&mut thread, &view);
            prop_assert_eq!(thread.next(&view, SESSION), Action::Rest);
        }
        prop_assert!(forge.pull_requests.len() <= 1);
        prop_assert!(forge.comments.len() <= COMMENTS_MAX as usize);
    }
}
