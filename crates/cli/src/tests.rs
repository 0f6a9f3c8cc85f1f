//! Whole commands against a fake gateway and real repositories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use crate::{
    Cli, Command,
    commands::{
        project,
        requests::{answer, why},
        session::{checkout, history, prompt, sessions, watch},
    },
    exit::Exit,
    fake::{Fake, SESSION},
    repository::git::Git,
};
use clap::{CommandFactory as _, Parser as _};
use rpc::v1::{Permission, Project, SessionState, Wait, source};
use serde_json::json;
use std::{fs, path::Path};

fn repository(dir: &Path) -> Git {
    let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let git = names.into_iter().fold(Git::at(dir), |git, name| git.with_text(name, "t"));
    git.run(&["init", "--quiet", "--initial-branch=trunk"]).unwrap();
    commit(&git, dir, "a", "1");
    git
}

fn commit(git: &Git, dir: &Path, name: &str, content: &str) -> String {
    fs::write(dir.join(name), content).unwrap();
    git.run(&["add", "."]).unwrap();
    git.run(&["commit", "--quiet", "-m", name]).unwrap();
    git.run(&["rev-parse", "HEAD"]).unwrap()
}

async fn run(fake: &Fake, words: &[&str]) -> Exit {
    let dir = tempfile::tempdir().unwrap();
    repository(dir.path());
    let repo = dir.path().to_str().unwrap().to_owned();
    let words =
        ["flotilla", "run", "--repo", &repo].into_iter().chain(words.iter().copied()).chain(["fix it"]);
    let Command::Run(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("run") };
    prompt::run(&fake.serve().await, *arguments).await.unwrap()
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[tokio::test]
async fn a_run_sends_repository_and_prompt_and_ends_with_the_outcome() {
    for (outcome, exit) in [
        ("done", Exit::Done),
        ("failed", Exit::Failed),
        ("aborted", Exit::Failed),
        ("needs_human", Exit::NeedsHuman),
        ("budget", Exit::Budget),
    ] {
        let fake = Fake::default();
        fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": outcome}))];
        assert_eq!(run(&fake, &["--model", "scripted/demo"]).await, exit, "{outcome}");
        let state = fake.0.lock().unwrap();
        assert!(state.bundle.starts_with(b"# v2 git bundle"));
        assert_eq!((state.prompt.text.as_str(), state.prompt.session_id.as_str()), ("fix it", SESSION));
        assert_eq!(state.session.model.as_ref().unwrap().model_id, "demo");
        assert_eq!(
            (state.session.title.as_str(), state.calls.as_slice()),
            ("", ["prompt", "subscribe"].as_slice())
        );
        assert!(
            state.prompt.idempotency_key.len() == 32
                && state.session.idempotency_key != state.prompt.idempotency_key
        );
    }
}

#[tokio::test]
async fn a_project_gets_another_repository_by_its_name() {
    let (fake, dir) = (Fake::default(), tempfile::tempdir().unwrap());
    repository(dir.path());
    let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
    fake.0.lock().unwrap().projects = vec![project];
    let update = async |name: &str| {
        let words = ["flotilla", "project", "update", name, "--repo", dir.path().to_str().unwrap()];
        let Command::Project(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!("project")
        };
        project::run(&fake.serve().await, arguments).await
    };
    assert_eq!(update("shop").await.unwrap(), Exit::Done);
    let from = Some(source::From::BundleId("bun_1".to_owned()));
    assert_eq!(fake.0.lock().unwrap().projects[0].source.as_ref().unwrap().from, from);
    let words = ["flotilla", "project", "update", "shop"];
    let Command::Project(unnamed) = Cli::try_parse_from(words).unwrap().command else { panic!("project") };
    let refused = project::run(&fake.serve().await, unnamed).await.unwrap_err();
    assert!(refused.to_string().contains("--repo"), "the current directory is no answer: {refused}");
    assert!(update("shed").await.unwrap_err().to_string().contains("there is no project shed"));
}

#[tokio::test]
async fn a_further_prompt_shows_only_what_comes() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
    let client = fake.serve().await;
    let say = |words: &[&str]| {
        let words = ["flotilla", "say", SESSION, "go on"].into_iter().chain(words.iter().copied());
        let Command::Say(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("say") };
        *arguments
    };
    assert_eq!(prompt::say(&client, say(&[])).await.unwrap(), Exit::Done);
    assert_eq!(prompt::say(&client, say(&["--detach"])).await.unwrap(), Exit::Done);
    let state = fake.0.lock().unwrap();
    assert_eq!(state.prompt.text, "go on");
    assert_eq!(state.calls, ["subscribe to the tail", "prompt", "prompt"]);
}

#[tokio::test]
async fn a_permission_needs_a_human_and_a_timeout_leaves_the_turn_alone() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![
        ("permission.asked", json!({"id": "per_1", "permission": "bash", "patterns": ["rm"]})),
        ("flotilla.session.waiting", json!({"reason": "permission", "until": null})),
    ];
    assert_eq!(run(&fake, &[]).await, Exit::NeedsHuman);
    let fake = Fake::default();
    fake.0.lock().unwrap().hangs = true;
    assert_eq!(run(&fake, &["--timeout", "0"]).await, Exit::StillRunning);
    assert_eq!(run(&fake, &["--detach"]).await, Exit::Done);
}

/// A session that waits for a subtask, which asks a person, or has a subtask that continues.
fn asking_below(going_on: u32) -> Fake {
    let fake = Fake::default();
    let mut state = fake.0.lock().unwrap();
    let task = json!({"id": "prt_1", "type": "tool", "tool": "task", "state": {"status": "running"}});
    state.events = vec![
        ("message.part.updated", json!({"part": task})),
        ("flotilla.session.waiting", json!({"reason": "children", "until": null})),
    ];
    state.permissions =
        vec![Permission { id: "per_1".to_owned(), session_id: "ses_2".to_owned(), ..Permission::default() }];
    (state.hangs, state.state) = (true, SessionState::Waiting);
    state.wait = Some(Wait { reason: "children".to_owned(), asking: 1, going_on, ..Wait::default() });
    drop(state);
    fake
}

#[tokio::test]
async fn a_subtask_that_asks_needs_a_human_once_nothing_else_goes_on() {
    let (stuck, works) = (asking_below(0), asking_below(1));
    let (stuck, works) = tokio::join!(run(&stuck, &[]), run(&works, &["--timeout", "5"]));
    assert_eq!((stuck, works), (Exit::NeedsHuman, Exit::StillRunning));
}

#[tokio::test]
async fn an_answer_to_a_session_is_none_to_its_subtasks() {
    let fake = asking_below(0);
    let answer = async |words: &[&str]| {
        let words = ["flotilla", "answer"].into_iter().chain(words.iter().copied());
        let Command::Answer(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!("answer")
        };
        answer::run(&fake.serve().await, arguments).await
    };
    assert!(answer(&[SESSION, "once"]).await.is_err());
    assert_eq!(fake.0.lock().unwrap().replies, [""; 0]);
    assert_eq!(answer(&["per_1", "once"]).await.unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_quarantined_session_needs_a_human_when_it_happens_and_afterwards() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![("flotilla.session.quarantined", json!({"reason": "loops"}))];
    assert_eq!(run(&fake, &[]).await, Exit::NeedsHuman);
    fake.0.lock().unwrap().state = SessionState::Quarantined;
    let words = ["flotilla", "watch", SESSION];
    let Command::Watch(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("watch") };
    assert_eq!(watch::run(&fake.serve().await, arguments).await.unwrap(), Exit::NeedsHuman);
}

#[tokio::test]
async fn a_wait_is_explained() {
    let fake = Fake::default();
    let words = ["flotilla", "why", SESSION, "--json"];
    for words in [&words[..], &words[..3]] {
        let Command::Why(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("why") };
        assert_eq!(why::run(&fake.serve().await, arguments).await.unwrap(), Exit::Done);
    }
}

#[tokio::test]
async fn a_fork_that_is_asked_for_again_is_the_same_one() {
    let fake = Fake::default();
    let words = ["flotilla", "fork", SESSION];
    let Command::Fork(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!("fork") };
    assert_eq!(history::fork(&fake.serve().await, arguments).await.unwrap(), Exit::Done);
    let keys = &fake.0.lock().unwrap().orders;
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "{keys:?}");
}

#[tokio::test]
async fn titles_and_the_archive_are_changed_one_at_a_time() {
    let fake = Fake::default();
    let client = fake.serve().await;
    for words in
        [&["rename", SESSION, "New name"][..], &["archive", SESSION], &["archive", SESSION, "--undo"]]
    {
        let words = ["flotilla"].into_iter().chain(words.iter().copied());
        let exit = match Cli::try_parse_from(words).unwrap().command {
            Command::Rename(arguments) => sessions::rename(&client, arguments).await,
            Command::Archive(arguments) => sessions::archive(&client, arguments).await,
            other => panic!("{other:?}"),
        };
        assert_eq!(exit.unwrap(), Exit::Done);
    }
    let want = [
        format!("title of {SESSION}: \"New name\" false"),
        format!("archived of {SESSION}: \"\" true"),
        format!("archived of {SESSION}: \"\" false"),
    ];
    assert_eq!(fake.0.lock().unwrap().orders, want);
}

#[tokio::test]
async fn checkout_makes_a_branch_and_leaves_the_files_alone() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let git = repository(ours.path());
    let base = git.run(&["rev-parse", "HEAD"]).unwrap();
    git.run(&["clone", "--quiet", ".", theirs.path().join("clone").to_str().unwrap()]).unwrap();
    let clone = theirs.path().join("clone");
    let remote = Git::at(&clone).with_text("GIT_AUTHOR_NAME", "w").with_text("GIT_AUTHOR_EMAIL", "w");
    let remote = remote.with_text("GIT_COMMITTER_NAME", "w").with_text("GIT_COMMITTER_EMAIL", "w");
    let result = commit(&remote, &clone, "a", "2");
    remote.run(&["bundle", "create", "--quiet", "b", "HEAD", &format!("^{base}")]).unwrap();

    let fake = Fake::default();
    fake.0.lock().unwrap().export = (fs::read(clone.join("b")).unwrap(), result.clone(), base.clone());
    let client = fake.serve().await;
    // A second checkout moves the branch to the same place.
    for _ in 0..2 {
        let words = ["flotilla", "checkout", SESSION, "--repo", ours.path().to_str().unwrap()];
        let Command::Checkout(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!("checkout")
        };
        assert_eq!(checkout::run(&client, arguments).await.unwrap(), Exit::Done);
    }
    assert_eq!(git.run(&["rev-parse", "flotilla/5kUL559D5O"]).unwrap(), result);
    assert_eq!(git.run(&["rev-parse", "HEAD"]).unwrap(), base);
    assert_eq!(fs::read_to_string(ours.path().join("a")).unwrap(), "1");
    assert_eq!(git.run(&["status", "--porcelain"]).unwrap(), "");
}
