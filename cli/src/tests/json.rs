//! `docs/json.md` and the real lines of the commands name the same types and fields.

use super::{
    asking_below,
    fake::{Fake, SESSION},
    repository,
};
use crate::{
    arguments::Cli,
    commands::{
        context::{self, ContextEntry},
        github, migrate, models,
        program::{doctor::Check, version::Versions},
        session::export,
    },
    exit::Exit,
    repository::git::Git,
    stack::{down, running::Stack},
    stream::item::{Delta, Item, Notice},
    terminal::output::Output,
};
use clap::Parser as _;
use rpc::v1::{
    GetGithubResponse, GithubApp, GithubDelivery, GithubInstallation, Project, Question, QuestionItem,
    QuestionOption, SessionState, Source, source,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

const PAGE: &str = include_str!("../../../docs/json.md");
/// The heading of all events, whose types are those of the log.
const EVENT: &str = "event";

/// The fields of each type.
type Schema = BTreeMap<String, BTreeSet<String>>;

/// The fields that the page lists for each type.
fn page() -> Schema {
    let mut schema = Schema::new();
    let mut name = String::new();
    for line in PAGE.lines() {
        let quoted = line.split('`').nth(1).unwrap_or_default().to_owned();
        if line.starts_with("## `") {
            name = quoted;
            schema.entry(name.clone()).or_default();
        } else if line.starts_with("| `") {
            assert!(
                schema.get_mut(&name).unwrap().insert(quoted.clone()),
                "{name}.{quoted} stands there twice"
            );
        }
    }
    schema
}

/// Enters the fields of an object. Fields of a field that the page lists as a whole are its own affair, except if it lists some of them too.
fn enter(fields: &mut BTreeSet<String>, listed: &BTreeSet<String>, prefix: &str, value: &Value) {
    let Value::Object(object) = value else { return };
    for (name, value) in object {
        let path = format!("{prefix}{name}");
        let lists_below = |below: &str| listed.iter().any(|it| it.starts_with(below));
        let (below, each) = (format!("{path}."), format!("{path}[]."));
        match value {
            Value::Object(_) if lists_below(&below) || !listed.contains(&path) => {
                enter(fields, listed, &below, value);
                fields.extend(listed.get(&path).cloned());
            }
            Value::Array(entries)
                if !listed.contains(&path)
                    && (lists_below(&each) || entries.iter().any(Value::is_object)) =>
            {
                entries.iter().for_each(|entry| enter(fields, listed, &each, entry));
            }
            _ => drop(fields.insert(path)),
        }
    }
}

/// Checks lines against the page, and enters what they name.
fn check(seen: &mut Schema, page: &Schema, lines: &str) {
    for line in lines.lines() {
        let mut object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let Some(Value::String(kind)) = object.as_object_mut().unwrap().remove("type") else {
            panic!("without a type: {line}")
        };
        let kind = if object.get("properties").is_some() { EVENT.to_owned() } else { kind };
        let listed = page.get(&kind).unwrap_or_else(|| panic!("docs/json.md lacks the type {kind}: {line}"));
        let fields = seen.entry(kind.clone()).or_default();
        enter(fields, listed, "", &object);
        let lacking: Vec<_> = fields.difference(listed).collect();
        assert!(lacking.is_empty(), "docs/json.md lacks {lacking:?} of {kind}: {line}");
    }
}

/// A gateway that has one of everything.
fn full() -> Fake {
    let fake = asking_below(0);
    let mut state = fake.0.lock().unwrap();
    let items = vec![QuestionItem { options: vec![QuestionOption::default()], ..QuestionItem::default() }];
    state.questions = vec![Question {
        id: "que_1".to_owned(),
        session_id: "ses_2".to_owned(),
        items,
        ..Default::default()
    }];
    let source =
        Source { from: Some(source::From::GitUrl("https://h/r".to_owned())), revision: "main".to_owned() };
    let (id, name) = ("prj_1".to_owned(), "shop".to_owned());
    state.projects = vec![Project { id, name, source: Some(source), ..Project::default() }];
    drop(state);
    fake
}

/// The lines of all commands of a tenant.
async fn lines_of_a_tenant(output: &Output, directory: &Path) {
    let fake = full();
    let (repo, secret) = (directory.to_str().unwrap(), directory.join("a"));
    let secret = secret.to_str().unwrap();
    let head = Git::at(directory).run(&["rev-parse", "HEAD"]).unwrap();
    fake.0.lock().unwrap().export = (vec![], head.clone(), head);
    for words in [
        &["run", "--repo", repo, "fix it"][..],
        &["run", "--project", "shop", "--detach", "fix it"],
        &["say", SESSION, "go on", "--detach"],
        &["ls"],
        &["tree", SESSION],
        &["why", SESSION],
        &["messages", SESSION],
        &["diff", SESSION],
        &["output", SESSION, "/outputs/1"],
        &["egress", "log", SESSION],
        &["abort", SESSION],
        &["rename", SESSION, "title"],
        &["archive", SESSION],
        &["revert", SESSION, "msg_1ffcce3d00015Oy45kUL559D5O"],
        &["unrevert", SESSION],
        &["fork", SESSION],
        &["checkout", SESSION, "--repo", repo],
        &["push", SESSION],
        &["push", SESSION, "--dry-run"],
        &["restart-workspace", SESSION],
        &["delete", SESSION],
        &["budget", SESSION],
        &["budget", SESSION, "2.50"],
        &["answer"],
        &["answer", "per_1", "once"],
        &["answer", "per_9", "once"],
        &["approvals"],
        &["approvals", "--delete", "per_1"],
        &["pty", SESSION, "--ls"],
        &["project", "create", "shed", "--repo", "https://h/shed.git"],
        &["project", "ls"],
        &["project", "show", "shop"],
        &["worktree", "create", "fix", "--project", "shop"],
        &["worktree", "ls", "--project", "shop"],
        &["worktree", "reset", "fix", "--project", "shop"],
        &["worktree", "remove", "shop.worktrees/fix", "--project", "shop"],
        &["env", "ls"],
        &["env", "log", "b"],
        &["env", "rm", "a"],
        &["env", "proposals", "--project", "shop"],
        &["env", "show", "aaaaaaaa", "--project", "shop"],
        &["env", "allow", "aaaaaaaa", "--project", "shop"],
        &["env", "init", "--repo", repo, "--stack", "npm"],
        &["secret", "set", "NPM_TOKEN", "--from-file", secret],
        &["secret", "ls"],
        &["secret", "rm", "NPM_TOKEN"],
        &["project", "delete", "shop", "--sessions"],
    ] {
        fake.run(output, words).await.unwrap_or_else(|error| panic!("{words:?}: {error:#}"));
    }
    // Open subtasks are polled every two seconds, and `run` above waits for that already.
    let idle = Fake::default();
    idle.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
    idle.0.lock().unwrap().state = SessionState::Idle;
    idle.run(output, &["watch", SESSION]).await.unwrap();
}

/// The lines of all other commands, as far as they need no machine of their own.
async fn other_lines(output: &Output) {
    let fake = full();
    let url = format!("--url={}", fake.address().await);
    for words in [
        "admin init",
        "admin queue",
        "admin workers",
        "admin sessions",
        "admin usage",
        "admin drain w",
        "admin release s",
        "admin kill s",
        "tenant ls",
        "tenant delete a --confirm a",
        "key create ci --role admin --tenant a",
        "key ls --tenant a",
        "key revoke flo_1 --tenant a",
        "audit ls",
        "audit export --tenant a",
        "config get",
        "config set /dev/null",
        "config explain --session ses_1",
    ] {
        let operator = ["admin", "tenant", "key", "audit"].iter().any(|name| words.starts_with(name));
        let line = ["flotilla", &url, "--api-key=key"].into_iter().chain(words.split(' '));
        let cli = Cli::try_parse_from(line.chain(operator.then_some("--operator-key=key"))).unwrap();
        crate::run(cli, output).await.unwrap_or_else(|error| panic!("{words}: {error:#}"));
    }
    let entry = ContextEntry { name: "work", url: None, data: None, is_current: true, is_used_here: true };
    for object in
        [entry.to_json(), context::login_json("work", "https://h"), Stack::default().to_json().unwrap()]
    {
        output.json(&object).unwrap();
    }
    let model = json!({"providers": [{"models": {"demo": {}}}]});
    for object in [
        Versions::default().to_json(),
        down::to_json(Path::new("/d"), true),
        migrate::migration_json(Some(1), 2),
        migrate::schema_json(None),
        github::status_json(&GetGithubResponse::default()),
        github::app_json(&GithubApp::default()),
        github::installation_json(&GithubInstallation::default()),
        github::delivery_json(&GithubDelivery::default()),
        github::replay_json("guid"),
        export::to_json(json!({}), &[]).unwrap(),
        models::parse(&model).unwrap()[0].to_json(),
    ] {
        output.json(&object).unwrap();
    }
    Check { status: "found", name: "git", detail: String::new() }.print(output).unwrap();
}

#[tokio::test]
async fn the_page_names_every_type_and_field_of_the_output() {
    let (page, output) = (page(), Output::kept(true));
    let (mut seen, directory) = (Schema::new(), tempfile::tempdir().unwrap());
    repository(directory.path());
    lines_of_a_tenant(&output, directory.path()).await;
    other_lines(&output).await;
    let delta = Delta {
        message_id: String::new(),
        part_id: String::new(),
        field: String::new(),
        offset_bytes: 0,
        text: String::new(),
    };
    output.json(&Item::Delta(delta).to_json().unwrap()).unwrap();
    let progress = json!({"sessionID": SESSION, "stage": "image", "elapsedMs": 2_000});
    let amount = json!({"done": 1, "total": 5, "unit": "layers"});
    for properties in [progress, amount] {
        let notice = Notice { kind: domain::event::WORKSPACE_PROGRESS.to_owned(), properties };
        output.json(&Item::Notice(notice).to_json().unwrap()).unwrap();
    }
    check(&mut seen, &page, &output.take());
    for (kind, fields) in &page {
        let unseen: Vec<_> = fields.difference(&seen.remove(kind).unwrap_or_default()).cloned().collect();
        assert!(unseen.is_empty(), "docs/json.md lists {unseen:?} of {kind}, which no command prints");
    }
}

#[tokio::test]
async fn the_last_line_of_a_turn_says_how_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    repository(directory.path());
    let last = async |fake: &Fake, words: &[&str]| {
        let output = Output::kept(true);
        let exit = fake.run(&output, words).await;
        let text = output.take();
        let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        (exit.ok(), line)
    };
    let run = ["run", "--repo", directory.path().to_str().unwrap(), "fix it"];
    let outcome = |session: &str, status: &str, exit: u8, outcome: &str| {
        json!({
            "type": "outcome", "session": session, "status": status, "exit": exit, "outcome": outcome, "code": null,
            "message": null,
        })
    };
    let idle = |outcome: &str| vec![("session.idle", json!({"outcome": outcome}))];
    for (events, exit, want) in [
        (idle("done"), Exit::Done, outcome(SESSION, "idle", 0, "done")),
        (idle("aborted"), Exit::Failed, outcome(SESSION, "aborted", 2, "aborted")),
        (idle("needs_human"), Exit::NeedsHuman, outcome(SESSION, "waiting", 3, "needs_human")),
        (idle("budget"), Exit::Budget, outcome(SESSION, "waiting", 4, "budget")),
    ] {
        let fake = Fake::default();
        fake.0.lock().unwrap().events = events;
        assert_eq!(last(&fake, &run).await, (Some(exit), want));
    }
    let fake = Fake::default();
    let error = json!({"error": {"name": "ProviderAuthError", "data": {"message": "no key"}}});
    fake.0.lock().unwrap().events =
        vec![("session.error", error), ("session.idle", json!({"outcome": "failed"}))];
    let (exit, line) = last(&fake, &run).await;
    assert_eq!(
        (exit, &line["status"], &line["code"]),
        (Some(Exit::Failed), &json!("error"), &json!("ProviderAuthError"))
    );
    let fake = Fake::default();
    fake.0.lock().unwrap().hangs = true;
    let (exit, line) = last(&fake, &[&run[..], &["--timeout", "0"]].concat()).await;
    assert_eq!((exit, line), (Some(Exit::StillRunning), outcome(SESSION, "running", 5, "running")));
    // The stream breaks, and the server refuses to continue it.
    let fake = Fake::default();
    fake.0.lock().unwrap().refuses_stream = true;
    let (exit, line) = last(&fake, &run).await;
    assert_eq!((exit, &line["session"], &line["code"]), (None, &json!(SESSION), &json!("cursor_invalid")));
    assert_eq!((&line["status"], &line["exit"]), (&json!("error"), &json!(1)));
    // Nothing was created.
    let (exit, line) = last(&Fake::default(), &["run", "--repo", "/no/such/directory", "fix it"]).await;
    assert_eq!((exit, &line["session"], &line["code"]), (None, &json!(null), &json!("command_failed")));
}
