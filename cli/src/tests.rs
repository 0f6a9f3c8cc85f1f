//! Whole commands against a fake gateway and real repositories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checkout;
pub(crate) mod fake;
mod json;

use crate::{
    arguments::{Cli, parse},
    exit::{self, Exit},
    repository::git::Git,
    terminal::output::Output,
    tests::fake::{Fake, SESSION},
};
use clap::CommandFactory as _;
use rpc::v1::{Permission, Project, SessionState, Source, Wait, source};
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

/// Runs a command of a tenant.
async fn command(fake: &Fake, words: &[&str]) -> anyhow::Result<Exit> {
    fake.run(&Output::kept(false), words).await
}

async fn run(fake: &Fake, words: &[&str]) -> Exit {
    let dir = tempfile::tempdir().unwrap();
    repository(dir.path());
    let repo = ["run", "--repo", dir.path().to_str().unwrap()];
    command(fake, &[&repo, words, &["fix it"]].concat()).await.unwrap()
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
async fn a_shell_command_ends_with_its_own_code() {
    let ended = |status: &str, metadata: serde_json::Value| {
        let state = json!({"status": status, "input": {"command": "x"}, "output": "", "metadata": metadata});
        let part =
            json!({"id": "prt_1", "messageID": "msg_1", "type": "tool", "tool": "bash", "state": state});
        ("message.part.updated", json!({"part": part}))
    };
    let running = ended("running", json!({}));
    for (end, outcome, exit) in [
        (ended("completed", json!({"exit": 0})), "done", Exit::Done),
        (ended("completed", json!({"exit": 1})), "done", Exit::Program(1)),
        (ended("completed", json!({"exit": 137})), "done", Exit::Program(137)),
        // A time limit ended it; a rule denied it; the workspace did not open; a person aborted it.
        (ended("completed", json!({"exit": null})), "done", Exit::Usage),
        (ended("error", json!({})), "done", Exit::Usage),
        (running.clone(), "failed", Exit::Usage),
        (ended("completed", json!({"exit": null})), "aborted", Exit::Usage),
    ] {
        let fake = Fake::default();
        let idle = ("session.idle", json!({"outcome": outcome}));
        fake.0.lock().unwrap().events = vec![running.clone(), end.clone(), idle];
        let (output, name) = (Output::kept(true), end.1.to_string());
        assert_eq!(fake.run(&output, &["shell", SESSION, "x"]).await.unwrap(), exit, "{name} {outcome}");
        let last: serde_json::Value =
            serde_json::from_str(output.take().lines().last().unwrap()).expect("the outcome");
        assert_eq!((&last["exit"], &last["outcome"]), (&json!(exit.code()), &json!(outcome)), "{last}");
        // The code of a command of an agent is not the end of the turn.
        assert_eq!(command(&fake, &["say", SESSION, "x"]).await.unwrap(), Exit::of_outcome(outcome));
    }
}

#[tokio::test]
async fn a_command_of_a_person_runs_as_long_as_the_person_says() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
    let timeout_ms = || match fake.0.lock().unwrap().prompt.parts[0].kind.clone() {
        Some(rpc::v1::prompt_part::Kind::Shell(shell)) => shell.timeout_ms,
        other => panic!("{other:?}"),
    };
    for (words, want) in [
        (&["shell", SESSION, "x"][..], 0),
        (&["shell", SESSION, "x", "--timeout", "5"], 5_000),
        (&["env", "check", "--repo", "https://git.acme.dev/a", "--timeout", "43200", "--", "x"], 43_200_000),
    ] {
        command(&fake, words).await.unwrap();
        assert_eq!(timeout_ms(), want, "{words:?}");
    }
    for seconds in ["0", "43201", "-1", "1h"] {
        assert!(command(&fake, &["shell", SESSION, "x", "--timeout", seconds]).await.is_err(), "{seconds}");
    }
}

#[tokio::test]
async fn a_project_gets_another_repository_by_its_name() {
    let (fake, dir) = (Fake::default(), tempfile::tempdir().unwrap());
    repository(dir.path());
    let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
    fake.0.lock().unwrap().projects = vec![project];
    let repo = dir.path().to_str().unwrap();
    let update = async |name: &str| command(&fake, &["project", "update", name, "--repo", repo]).await;
    assert_eq!(update("shop").await.unwrap(), Exit::Done);
    let from = Some(source::From::BundleId("bun_1".to_owned()));
    assert_eq!(fake.0.lock().unwrap().projects[0].source.as_ref().unwrap().from, from);
    let refused = command(&fake, &["project", "update", "shop"]).await.unwrap_err();
    assert!(refused.to_string().contains("--repo"), "the current directory is no answer: {refused}");
    assert!(update("shed").await.unwrap_err().to_string().contains("there is no project shed"));
}

#[tokio::test]
async fn a_worktree_is_named_by_its_name_or_its_directory() {
    let fake = Fake::default();
    let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
    fake.0.lock().unwrap().projects = vec![project];
    let worktree = async |words: &[&str]| {
        let words = [&["worktree"], words, &["--project", "shop"]].concat();
        command(&fake, &words).await
    };
    worktree(&["create", "fix"]).await.unwrap();
    worktree(&["reset", "fix"]).await.unwrap();
    worktree(&["remove", "shop.worktrees/fix"]).await.unwrap();
    let unknown = worktree(&["remove", "other"]).await.unwrap_err();
    assert_eq!(exit::code(&unknown), "worktree_unknown");
    assert!(unknown.to_string().contains("`flotilla worktree ls --project shop`"), "{unknown}");
    let list = "list worktrees of prj_1";
    let want = [
        "create worktree \"fix\" of prj_1",
        list,
        "reset worktree shop.worktrees/fix of prj_1",
        list,
        "remove worktree shop.worktrees/fix of prj_1",
        list,
    ];
    assert_eq!(fake.0.lock().unwrap().orders, want);
    let run = ["run", "--project", "shop", "--worktree", "fix", "--detach", "fix it"];
    command(&fake, &run).await.unwrap();
    assert_eq!(fake.0.lock().unwrap().session.worktree, "shop.worktrees/fix");
}

#[tokio::test]
async fn a_new_session_says_which_files_it_has() {
    let (dir, output) = (tempfile::tempdir().unwrap(), Output::kept(false));
    repository(dir.path());
    let repo = dir.path().join(".").to_str().unwrap().to_owned();
    let fake = Fake::default();
    let words = ["run", "--repo", &repo, "--detach", "fix it"];
    fake.run(&output, &words).await.unwrap();
    let name = fake.0.lock().unwrap().project.clone();
    assert!(!output.take_notes().contains("--project"), "the project is that of this place");
    fake.0.lock().unwrap().is_elsewhere = true;
    fake.run(&output, &words).await.unwrap();
    let notes = output.take_notes();
    let own = fake.0.lock().unwrap().project.clone();
    assert!(own.starts_with(&format!("{name}-")) && own.len() == name.len() + 7, "{own}");
    let told = format!(
        "the project {name} is another repository, so this one is the project {own}; `--project {name}`"
    );
    assert!(notes.contains(&told), "{notes}");
    assert!(fake.0.lock().unwrap().session.source.is_some());

    let source = Source { from: Some(source::From::BundleId("b".repeat(64))), ..Source::default() };
    let (id, name) = ("prj_2".to_owned(), "shop".to_owned());
    fake.0.lock().unwrap().projects = vec![Project { id, name, source: Some(source), ..Project::default() }];
    fake.run(&output, &["run", "--project", "shop", "--detach", "fix it"]).await.unwrap();
    let notes = output.take_notes();
    assert!(notes.starts_with("shop opens files of commit c0ffeec0ffee, uploaded "), "{notes}");
    assert!(notes.trim_end().ends_with("days ago"), "{notes}");
    let session = fake.0.lock().unwrap().session.clone();
    assert_eq!((session.project_id.as_str(), session.source), ("prj_2", None));
    let again = ["project", "create", "shop", "--repo", "https://h/shop.git"];
    let refused = fake.run(&output, &again).await.unwrap_err().to_string();
    assert!(
        refused.contains("commit c0ffeec0ffee, uploaded ") && refused.contains("project update"),
        "{refused}"
    );
}

#[tokio::test]
async fn messages_are_shown_from_the_beginning() {
    let output = Output::kept(false);
    Fake::default().run(&output, &["messages", SESSION]).await.unwrap();
    assert_eq!(output.take(), "> 1\n> 2\n> 3\n> 4\n");
}

#[test]
fn services_show_and_take_no_flags_of_clients() {
    let help = |words: &[&str]| {
        let words = ["flotilla"].iter().chain(words).map(Into::into);
        parse(words).unwrap_err().render().to_string()
    };
    let flags = ["--url ", "--api-key ", "--context ", "--data ", "--json", "--no-pager"];
    let shown = |name: &str| {
        let text = help(&[name, "--help"]);
        assert!(text.contains("--help"), "{text}");
        flags.into_iter().filter(|flag| text.contains(flag)).collect::<Vec<_>>()
    };
    assert_eq!(shown("ls"), flags);
    assert_eq!(shown("up"), ["--data ", "--json"]);
    for service in ["gateway", "worker", "sandbox", "model-script", "completion"] {
        assert_eq!(shown(service), [""; 0], "{service}");
    }
    for line in
        [&["model-script", "--json"][..], &["completion", "bash", "--url", "u"], &["up", "--context", "c"]]
    {
        assert!(help(line).contains("takes no --"), "{line:?}: {}", help(line));
    }
}

#[tokio::test]
async fn a_further_prompt_shows_only_what_comes() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
    for words in [&["say", SESSION, "go on"][..], &["say", SESSION, "go on", "--detach"]] {
        assert_eq!(command(&fake, words).await.unwrap(), Exit::Done);
    }
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
    assert!(command(&fake, &["answer", SESSION, "once"]).await.is_err());
    assert_eq!(fake.0.lock().unwrap().replies, [""; 0]);
    assert_eq!(command(&fake, &["answer", "per_1", "once"]).await.unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_request_that_is_not_open_is_no_empty_list() {
    let fake = asking_below(0);
    assert_eq!(command(&fake, &["answer", "per_1"]).await.unwrap(), Exit::Done);
    for (id, code) in
        [("nope", "session_not_found"), ("per_9", "permission_not_found"), ("que_9", "question_not_found")]
    {
        assert_eq!(exit::code(&command(&fake, &["answer", id]).await.unwrap_err()), code, "{id}");
    }
}

#[tokio::test]
async fn a_quarantined_session_needs_a_human_when_it_happens_and_afterwards() {
    let fake = Fake::default();
    fake.0.lock().unwrap().events = vec![("flotilla.session.quarantined", json!({"reason": "loops"}))];
    assert_eq!(run(&fake, &[]).await, Exit::NeedsHuman);
    fake.0.lock().unwrap().state = SessionState::Quarantined;
    assert_eq!(command(&fake, &["watch", SESSION]).await.unwrap(), Exit::NeedsHuman);
}

#[tokio::test]
async fn a_fork_that_is_asked_for_again_is_the_same_one() {
    let fake = Fake::default();
    assert_eq!(command(&fake, &["fork", SESSION]).await.unwrap(), Exit::Done);
    let keys = &fake.0.lock().unwrap().orders;
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "{keys:?}");
}

#[tokio::test]
async fn titles_and_the_archive_are_changed_one_at_a_time() {
    let fake = Fake::default();
    for words in
        [&["rename", SESSION, "New name"][..], &["archive", SESSION], &["archive", SESSION, "--undo"]]
    {
        assert_eq!(command(&fake, words).await.unwrap(), Exit::Done);
    }
    let want = [
        format!("title of {SESSION}: \"New name\" false"),
        format!("archived of {SESSION}: \"\" true"),
        format!("archived of {SESSION}: \"\" false"),
    ];
    assert_eq!(fake.0.lock().unwrap().orders, want);
}

#[tokio::test]
async fn a_prompt_that_the_gateway_refuses_sends_nothing() {
    let (fake, directory) = (Fake::default(), tempfile::tempdir().unwrap());
    repository(directory.path());
    let words = ["run", "--repo", directory.path().to_str().unwrap(), ""];
    assert_eq!(exit::code(&command(&fake, &words).await.unwrap_err()), "prompt_empty");
    let state = fake.0.lock().unwrap();
    assert!(state.bundle.is_empty() && state.project.is_empty() && state.calls.is_empty());
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_refused_before_anything_is_sent() {
    let (fake, directory) = (Fake::default(), tempfile::tempdir().unwrap());
    repository(directory.path());
    let words = ["run", "--repo", directory.path().to_str().unwrap(), "--model", "nope/x", "fix it"];
    let error = command(&fake, &words).await.unwrap_err();
    assert!(format!("{error:#}").contains("no such model: nope/x"), "{error:#}");
    let state = fake.0.lock().unwrap();
    assert!(state.bundle.is_empty() && state.project.is_empty() && state.calls.is_empty());
}

#[tokio::test]
async fn a_commit_that_is_already_there_is_not_sent() {
    let (fake, directory) = (Fake::default(), tempfile::tempdir().unwrap());
    let git = repository(directory.path());
    fake.0.lock().unwrap().known_commits.push(git.run(&["rev-parse", "HEAD"]).unwrap());
    fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
    let words = ["run", "--repo", directory.path().to_str().unwrap(), "fix it"];
    assert_eq!(command(&fake, &words).await.unwrap(), Exit::Done);
    let state = fake.0.lock().unwrap();
    assert!(state.bundle.is_empty());
    let source = state.session.source.clone().unwrap();
    assert_eq!(source.from, Some(source::From::BundleId("bun_0".to_owned())));
}
