//! The project of a directory that a client names.

use super::{client::Client, events::Events};
use e2e::{
    Options, Stack,
    turn::{bash, run},
};
use futures::{StreamExt as _, stream};
use reqwest::Method;
use rpc::v1;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A project with files at a directory, without a remote.
pub(super) async fn created_at(stack: &Stack, name: &str, directory: &str) -> String {
    let files = [("a.txt", "from the project")];
    let bundle = stack.api.upload(&testkit::git::repository(&files).bundle()).await;
    let from = Some(v1::source::From::BundleId(bundle));
    let request = v1::CreateProjectRequest {
        name: name.to_owned(),
        source: Some(v1::Source { from, revision: String::new() }),
        place: Some(v1::Place { directory: directory.to_owned(), ..Default::default() }),
        or_at_place: false,
    };
    stack.api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id
}

/// A source, and the place that it comes from.
async fn created(stack: &Stack, name: &str, directory: &str) -> v1::Project {
    let bundle =
        stack.api.upload(&testkit::git::repository(&[("src/a.txt", "from the project")]).bundle()).await;
    let from = Some(v1::source::From::BundleId(bundle));
    let request = v1::CreateProjectRequest {
        name: name.to_owned(),
        source: Some(v1::Source { from, revision: String::new() }),
        place: Some(v1::Place {
            directory: directory.to_owned(),
            remote: "git@example.com:me/app.git".to_owned(),
            ..Default::default()
        }),
        or_at_place: true,
    };
    stack.api.projects().create_project(request).await.unwrap().into_inner().project.unwrap()
}

#[tokio::test]
async fn a_directory_finds_the_project_whose_source_it_is() {
    let stack = Stack::start().await;
    let app = created(&stack, "app", "/home/me/app").await;
    assert_eq!(created(&stack, "clone", "/srv/clone").await.id, app.id, "the same remote");
    for directory in ["app", "/home/me/app", "/srv/clone"] {
        let client = Client::new(&stack, directory);
        let project = client.get("/project/current").await;
        assert_eq!((&project["id"], &project["worktree"]), (&json!(app.id), &json!(directory)));
        assert_eq!(client.get("/api/location").await["directory"], directory);
    }
    let client = Client::new(&stack, "/home/me/app");
    let mut events = Events::of(&client, "/global/event", "").await;
    let session = client.session(json!({})).await;
    let answer = client.prompt(&session, &format!("{}\n@text done", bash("cat src/a.txt"))).await;
    let texts = answer["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str());
    assert_eq!(texts.collect::<Vec<_>>(), ["done"], "{answer}");
    events.until_session("session.idle", &session).await;
    assert!(client.get("/find/file?query=a.txt").await.to_string().contains("src/a.txt"));
    // Files below the directory are those of the session.
    let file = json!({"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///home/me/app/src/a.txt"});
    let prompt = json!({"parts": [{"type": "text", "text": "@text read"}, file]});
    client.post(&format!("/session/{session}/message"), prompt).await;
    let talk = client.get(&format!("/session/{session}/message")).await.to_string();
    assert!(talk.contains("Called the Read tool") && talk.contains("from the project"), "{talk}");
    let projects = client.get("/project").await.to_string();
    assert!(
        !projects.contains("/home/me/app") && !projects.contains("clone"),
        "no second project: {projects}"
    );
}

/// Asserts that a session begins with a note and a prompt, and returns the number of its messages.
async fn noted(client: &Client, session: &str, note: &str) -> usize {
    let shown = client.get(&format!("/session/{session}/message")).await;
    let (first, part) = (&shown[0]["info"], &shown[0]["parts"][0]);
    assert_eq!(
        [&first["role"], &part["text"], &part["ignored"], &shown[1]["parts"][0]["text"]],
        [&json!("user"), &json!(note), &json!(true), &json!("@text hello")]
    );
    // `opencode run` prints texts that have ended.
    assert!(part["time"]["end"].is_number(), "{part}");
    shown.as_array().unwrap().len()
}

#[tokio::test]
async fn reads_create_no_project_and_a_new_one_is_announced() {
    if e2e::is_left_out(&["nats"], "notices come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let mut client = Client::new(&stack, "/home/me/new");
    // Other programs than OpenCode's own get no note in their sessions.
    client.http = reqwest::Client::builder().user_agent("opencode/1.2.3").build().unwrap();
    let nowhere = Client::new(&stack, "");
    for path in [
        "/project/current",
        "/session",
        "/agent",
        "/config",
        "/api/location",
        "/api/permission/request",
        "/api/agent",
    ] {
        client.get(path).await;
        nowhere.get(path).await;
    }
    let mut events = Events::of(&client, "/event", "").await;
    let mut commands = Events::of(&client, "/event", "").await;
    assert!(!client.get("/project").await.to_string().contains("/home/me/new"));
    // A command reaches clients in a directory without a project.
    client.post("/tui/append-prompt", json!({"text": "hi"})).await;
    commands.until(|event| event["type"] == "tui.prompt.append").await;
    let answer = client.send(Method::POST, "/session", "").await;
    let note = answer.headers["x-flotilla-note"].to_str().unwrap();
    assert!(note.contains("flotilla project update /home/me/new --repo PATH"), "{note}");
    let toast = events.until(|event| event["type"] == "tui.toast.show").await;
    assert_eq!(toast["properties"]["message"], note);
    // The session shows the note too, and its model reads only the one of the system prompt.
    let first = answer.body["id"].as_str().unwrap();
    client.prompt(first, "@text hello").await;
    assert_eq!(noted(&client, first, note).await, 3);
    let mut late = Events::of(&client, "/global/event", "").await;
    late.until_idle(first).await;
    let texts: Vec<&Value> = late
        .seen
        .iter()
        .map(|event| &event["properties"]["part"]["text"])
        .filter(|text| text.is_string())
        .collect();
    assert!(
        texts.starts_with(&[&json!(note), &json!("@text hello")]),
        "a late client gets the note: {texts:?}"
    );
    let asked = stack.model.journal.requests();
    let mut asked = asked.iter().map(|request| request.body.to_string());
    let step = asked.find(|body| body.contains("flotilla project update PROJECT")).unwrap();
    assert!(step.contains("@text hello") && !step.contains("/home/me/new"), "{step}");
    let again = client.send(Method::POST, "/session", "").await;
    let second = again.body["id"].as_str().unwrap();
    assert_eq!(again.headers["x-flotilla-note"], note, "at each session");
    client.prompt(second, "@text hello").await;
    client.prompt(second, "@text again").await;
    assert_eq!(noted(&client, second, note).await, 5, "once in a session");
    events.until_session("session.created", second).await;
    let toasts = events.seen.iter().filter(|event| event["type"] == "tui.toast.show");
    assert_eq!(toasts.count(), 1, "the toast is about the new project");
    let projects = client.get("/project").await;
    let mut names = projects.as_array().unwrap().iter().map(|project| project["worktree"].as_str().unwrap());
    assert!(
        names.clone().any(|name| name == "/home/me/new") && !names.any(|name| name == "default"),
        "{projects}"
    );
}

#[tokio::test]
async fn a_client_without_a_directory_gets_the_only_project_with_files() {
    let stack = Stack::gateway_alone().await;
    let nowhere = Client::new(&stack, "");
    let begun = async || {
        let answer = nowhere.send(Method::POST, "/session", "").await;
        let directory = answer.body["directory"].as_str().unwrap().to_owned();
        assert_eq!(nowhere.get("/path").await["directory"], directory);
        (directory, answer.headers.contains_key("x-flotilla-note"))
    };
    assert_eq!(begun().await, ("default".to_owned(), true), "no project has files");
    Client::new(&stack, "/home/me/scratch").session(json!({})).await;
    let app = created(&stack, "app", "/home/me/app").await;
    assert_eq!(begun().await, ("app".to_owned(), false), "the projects without files do not count");
    assert_eq!(nowhere.get("/project/current").await["id"], app.id);
    created_at(&stack, "other", "/home/me/other").await;
    assert_eq!(begun().await, ("default".to_owned(), true), "two projects have files");
    let stranger = Client { key: stack.other_tenant().await.key, ..nowhere.clone() };
    assert_eq!(stranger.get("/path").await["directory"], "default", "another tenant has no project");
}

#[tokio::test]
async fn a_directory_below_that_of_a_repository_belongs_to_its_project() {
    let stack = Stack::gateway_alone().await;
    let app = created(&stack, "app", "/home/me/app").await;
    let vendor = created_at(&stack, "vendor", "/home/me/app/vendor").await;
    Client::new(&stack, "/home").session(json!({})).await;
    let client = Client::new(&stack, "/home/me/app");
    let fix = client.post("/experimental/worktree", json!({"name": "fix"})).await;
    for (directory, want) in [
        ("/home/me/app/src/deep".to_owned(), Some(&app.id)),
        ("/home/me/app/".to_owned(), Some(&app.id)),
        ("/home/me/app/vendor/src".to_owned(), Some(&vendor)),
        ("/app".to_owned(), Some(&app.id)),
        (format!("/{}", fix["directory"].as_str().unwrap()), Some(&app.id)),
        ("/home/me/apple".to_owned(), None),
        ("/home/me".to_owned(), None),
        ("app/src".to_owned(), None),
    ] {
        let client = Client::new(&stack, &directory);
        let session = client.post("/session", json!({})).await;
        match want {
            Some(project) => assert_eq!(session["projectID"], project.as_str(), "{directory}"),
            None => assert_eq!(session["directory"], directory, "a project of its own"),
        }
        let listed = client.get("/session").await.to_string();
        assert!(listed.contains(session["id"].as_str().unwrap()), "{directory}: {listed}");
        assert_eq!(client.get("/path").await["directory"], directory);
    }
}

/// A client that writes files before the first prompt opens them.
#[tokio::test]
async fn the_branch_of_opened_files_is_announced_without_a_prompt() {
    let stack = Stack::start().await;
    created(&stack, "app", "/home/me/app").await;
    let client = Client::new(&stack, "/home/me/app");
    let mut events = Events::of(&client, "/event", "").await;
    client.session(json!({})).await;
    assert_eq!(client.get("/vcs").await, json!({}), "the files are not open");
    let patch = "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n";
    client.post("/vcs/apply", json!({"patch": patch})).await;
    let event = events.until(|event| event["type"] == "vcs.branch.updated").await;
    assert_eq!(event["properties"], json!({"branch": "main"}));
    assert_eq!(client.get("/vcs").await, json!({"branch": "main"}));
}

#[tokio::test]
async fn an_operator_can_refuse_unknown_directories() {
    let stack =
        Stack::with(Options { gateway: &["--unknown-directories", "refuse"], ..Options::default() }).await;
    let app = created(&stack, "app", "/home/me/app").await;
    Client::new(&stack, "/home/me/app").session(json!({})).await;
    let client = Client::new(&stack, "/home/me/other");
    let request = client.request(Method::POST, "/session").json(&json!({}));
    let refused = request.send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-flotilla-code"]),
        (400, &"directory_unknown".parse().unwrap())
    );
    let refused: Value = refused.json().await.unwrap();
    assert!(refused["message"].as_str().unwrap().contains("flotilla project create"), "{refused}");
    let projects = client.get("/project").await.to_string();
    assert!(projects.contains(&app.id) && !projects.contains("/home/me/other"), "{projects}");
}

/// A client that starts shows what the repository defines, as the newest session with open files has it, else as its commit does.
#[tokio::test]
async fn what_a_repository_defines_is_listed_once_its_commit_was_read_and_its_files_once_they_are_open() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "project");
    let repository = testkit::git::repository(&[
        (
            ".opencode/agent/reviewer.md",
            "---\ndescription: reads changes\nmode: subagent\nfiles: fork\n---\n\nRead.\n",
        ),
        (".opencode/command/greet.md", "---\ndescription: greets\n---\n\nSay hello to $1.\n"),
        (".opencode/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: reads PDF\n---\n\nDo it.\n"),
    ]);
    let names = |list: Value, name: &str| list.as_array().unwrap().iter().any(|entry| entry["name"] == name);
    let defined = async || {
        [
            names(client.get("/agent").await, "reviewer"),
            names(client.get("/command").await, "greet"),
            client.get("/api/agent").await["data"].to_string().contains("\"id\":\"reviewer\""),
        ]
    };
    let has_skill = async || names(client.get("/skill").await, "pdf");
    let session = stack.session_on(&repository).await;
    assert_eq!((defined().await, has_skill().await), ([false; 3], false), "the commit was not read");
    run(&stack.api, &session, "@text read").await;
    assert_eq!((defined().await, has_skill().await), ([true; 3], false), "no tool has opened the files");
    assert_eq!(client.get("/find/file?query=greet").await, json!([]));
    run(&stack.api, &session, &format!("{}\n@text run", bash("true"))).await;
    let found = client.get("/find/file?query=greet").await;
    assert_eq!(found, json!([".opencode/command/greet.md"]));
    assert_eq!((defined().await, has_skill().await), ([true; 3], true));
    let agents = client.get("/agent").await;
    let reviewer = agents.as_array().unwrap().iter().find(|agent| agent["name"] == "reviewer").unwrap();
    assert_eq!((&reviewer["mode"], &reviewer["description"]), (&json!("subagent"), &json!("reads changes")));
    assert_eq!(reviewer["options"], json!({"files": "fork"}));
    assert_eq!(client.get("/vcs").await, json!({"branch": "main"}));
    // A newer session without files hides nothing.
    client.session(json!({})).await;
    assert_eq!((defined().await, has_skill().await), ([true; 3], true));
    let other = Client::new(&stack, "elsewhere");
    assert!(!other.get("/agent").await.to_string().contains("reviewer"), "another project");
}

/// One page of the store has 200 sessions.
#[tokio::test]
async fn a_list_has_as_many_sessions_as_the_client_asks_for() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let first = client.session(json!({})).await;
    let others = stream::iter(0..410).map(|_| client.session(json!({}))).buffer_unordered(16);
    let mut sessions: BTreeSet<String> = others.collect().await;
    sessions.insert(first);
    let listed = async |query: &str| {
        let listed = client.get(&format!("/session{query}")).await;
        let ids = listed.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let all = listed("?limit=10000").await;
    assert_eq!(all.len(), 411);
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), sessions);
    assert_eq!(listed("?limit=250").await, all[..250]);
    assert_eq!(listed("?limit=200").await, all[..200]);
    assert_eq!(listed("").await, all[..100], "as in OpenCode");
}
