//! Worktrees: directories of a project in which sessions begin on a branch of their own.

use super::{client::Client, events::Events};
use e2e::{Stack, api::assert_refused, turn::bash};
use reqwest::Method;
use rpc::v1;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::git::Repository;
use tonic::Code;

const PATH: &str = "/experimental/worktree";
const RESET: &str = "/experimental/worktree/reset";
/// Worktrees that a project may have.
const WORKTREES_MAX: usize = 50;

/// Creates a project with the files of a repository.
async fn project(stack: &Stack, name: &str, repository: &Repository) -> String {
    let from = Some(v1::source::From::BundleId(stack.api.upload(&repository.bundle()).await));
    let source = Some(v1::Source { from, revision: String::new() });
    let request = v1::CreateProjectRequest { name: name.to_owned(), source, ..Default::default() };
    stack.api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id
}

/// A repository whose branch `opencode/pushed` has a later commit.
fn repository() -> Repository {
    let repository = testkit::git::repository(&[("a.txt", "from main\n")]);
    repository.git(&["checkout", "--quiet", "-b", "opencode/pushed"]);
    std::fs::write(repository.path().join("a.txt"), "from the branch\n").unwrap();
    repository.git(&["commit", "--quiet", "--all", "--message=pushed"]);
    repository.git(&["checkout", "--quiet", "main"]);
    repository
}

/// The branch and the file in the sandbox of a session.
async fn files(client: &Client, session: &str) -> String {
    let look = bash("git rev-parse --abbrev-ref HEAD; cat a.txt");
    let answer = client.prompt(session, &format!("{look}\n@text {{{{last_tool_result}}}}")).await;
    let texts = answer["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str());
    texts.collect::<String>().trim().to_owned()
}

async fn sessions(client: &Client) -> BTreeSet<String> {
    let listed = client.get("/session").await;
    listed.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

/// The stable code of a refusal.
async fn code(client: &Client, method: Method, path: &str, body: Value) -> String {
    let answer = client.send(method, path, &body.to_string()).await;
    assert_eq!(
        (answer.status, &answer.body["_tag"]),
        (400, &json!("InvalidRequestError")),
        "{}",
        answer.body
    );
    answer.headers["x-flotilla-code"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn sessions_begin_on_the_branch_of_their_worktree_and_are_listed_in_it() {
    let stack = Stack::start().await;
    let id = project(&stack, "/home/me/app", &repository()).await;
    let client = Client::new(&stack, "/home/me/app");
    let made = client.post(PATH, json!({"name": "Fix the Login!"})).await;
    let directory = "/home/me/app.worktrees/fix-the-login";
    let branch = "opencode/fix-the-login";
    assert_eq!(made, json!({"name": "fix-the-login", "branch": branch, "directory": directory}));
    assert_eq!(client.get(PATH).await, json!([directory]));
    let fix = Client::new(&stack, directory);
    let current = fix.get("/project/current").await;
    assert_eq!(
        (&current["id"], &current["worktree"], &current["sandboxes"]),
        (&json!(id), &json!("/home/me/app"), &json!([directory]))
    );
    let directories = json!([{"directory": "/home/me/app"}, {"directory": directory}]);
    assert_eq!(fix.get(&format!("/project/{id}/directories")).await, directories);
    assert_eq!(fix.get("/vcs").await, json!({"branch": branch}), "before a session has files");

    let mut events = Events::of(&fix, "/event", "").await;
    let (outside, inside) = (client.session(json!({})).await, fix.session(json!({})).await);
    assert_eq!(files(&fix, &inside).await, format!("{branch}\nfrom main"));
    events.until_session("session.idle", &inside).await;
    assert!(!json!(events.seen).to_string().contains(&outside), "another directory");
    assert_eq!(files(&client, &outside).await, "main\nfrom main");
    assert_eq!(fix.get("/vcs").await, json!({"branch": branch}), "the newest session of the worktree");
    let shown = client.get(&format!("/session/{inside}")).await;
    assert_eq!((&shown["directory"], &shown["projectID"]), (&json!(directory), &json!(id)));
    let fork = client.post(&format!("/session/{inside}/fork"), json!({})).await;
    assert_eq!(fork["directory"], directory);
    let fork = fork["id"].as_str().unwrap().to_owned();
    assert_eq!(files(&fix, &fork).await, format!("{branch}\nfrom main"));
    let own = BTreeSet::from([inside.clone(), fork.clone()]);
    assert_eq!(sessions(&fix).await, own);
    assert_eq!(sessions(&client).await, &own | &BTreeSet::from([outside]), "the project shows all of them");
    let newer = fix.get("/api/session").await["data"].as_array().unwrap().len();
    assert_eq!(newer, 2);

    // The repository has a branch of this name.
    let pushed = client.post(PATH, json!({"name": "pushed"})).await;
    let pushed = Client::new(&stack, pushed["directory"].as_str().unwrap());
    let session = pushed.session(json!({})).await;
    assert_eq!(files(&pushed, &session).await, "opencode/pushed\nfrom the branch");
}

#[tokio::test]
async fn the_sessions_of_a_worktree_stay_when_it_begins_anew_or_is_removed() {
    let stack = Stack::start().await;
    project(&stack, "app", &repository()).await;
    let client = Client::new(&stack, "app");
    let made = client.post(PATH, json!({"name": "pushed", "startCommand": ""})).await;
    let named = json!({"directory": made["directory"]});
    let worktree = Client::new(&stack, made["directory"].as_str().unwrap());
    let first = worktree.session(json!({})).await;
    assert_eq!(files(&worktree, &first).await, "opencode/pushed\nfrom the branch");

    assert_eq!(client.post(RESET, named.clone()).await, true);
    assert_eq!(sessions(&worktree).await, BTreeSet::new());
    assert_eq!(client.get(&format!("/session/{first}")).await["directory"], "app");
    let second = worktree.session(json!({})).await;
    let seen = files(&worktree, &second).await;
    let (branch, file) = seen.split_once('\n').unwrap();
    assert!(branch.starts_with("opencode/pushed-") && file == "from main", "{seen}");
    assert_eq!(worktree.get("/vcs").await, json!({"branch": branch}));

    assert_eq!(client.expect(200, Method::DELETE, PATH, named.clone()).await, true);
    assert_eq!(client.get(PATH).await, json!([]));
    assert_eq!(sessions(&client).await, BTreeSet::from([first, second.clone()]));
    let again = files(&client, &second).await;
    assert!(again.contains(&seen), "the files stay: {again}");
    for (method, path) in [(Method::DELETE, PATH), (Method::POST, RESET)] {
        assert_eq!(code(&client, method, path, named.clone()).await, "worktree_unknown");
    }
}

#[tokio::test]
async fn clients_hear_of_a_worktree_and_commands_reach_only_its_directory() {
    if e2e::is_left_out(&["nats"], "notices come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let project_id = project(&stack, "app", &repository()).await;
    let client = Client::new(&stack, "app");
    let nowhere = Client::new(&stack, "");
    let mut everywhere = Events::of(&nowhere, "/global/event", "").await;
    let mut events = Events::of(&client, "/event", "").await;
    let made = client.post(PATH, json!({"name": "fix"})).await;
    let ready = json!({"name": "fix", "branch": "opencode/fix"});
    for events in [&mut everywhere, &mut events] {
        let updated = events.until(|event| event["type"] == "project.updated").await;
        assert_eq!(updated["properties"]["sandboxes"], json!([made["directory"]]));
        let event = events.until(|event| event["type"] == "worktree.ready").await;
        assert_eq!(event["properties"], ready);
    }
    let worktree = Client::new(&stack, made["directory"].as_str().unwrap());
    let mut own = Events::of(&worktree, "/event", "").await;
    client.post("/tui/append-prompt", json!({"text": "for the project"})).await;
    worktree.post("/tui/append-prompt", json!({"text": "for the worktree"})).await;
    let of_command = |event: &Value| event["type"] == "tui.prompt.append";
    assert_eq!(own.until(of_command).await["properties"]["text"], "for the worktree");
    assert_eq!(events.until(of_command).await["properties"]["text"], "for the project");
    // The settings of the project are those of the worktree.
    let document = "{}".to_owned();
    stack.api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await.unwrap();
    let of_disposal = |event: &Value| {
        event["type"] == "server.instance.disposed" && event["properties"]["directory"] == made["directory"]
    };
    own.until(of_disposal).await;
    let session = worktree.session(json!({})).await;
    worktree.prompt(&session, "@text inside").await;
    own.until_session("session.idle", &session).await;
    client.post(RESET, json!({"directory": made["directory"]})).await;
    own.until(of_disposal).await;
    let event = own.until(|event| event["type"] == "worktree.ready").await;
    assert!(event["properties"]["branch"].as_str().unwrap().starts_with("opencode/fix-"), "{event}");
    // Its session is in the project alone from now on.
    let seen = own.seen.len();
    client.prompt(&session, "@text outside").await;
    worktree.post("/tui/append-prompt", json!({"text": "over"})).await;
    own.until(of_command).await;
    assert!(!json!(own.seen[seen..]).to_string().contains(&session), "another directory");
    events.until(|event| event.to_string().contains("outside")).await;
    client.expect(200, Method::DELETE, PATH, json!({"directory": made["directory"]})).await;
    own.until(of_disposal).await;
}

#[tokio::test]
async fn what_a_session_does_and_asks_is_shown_in_its_worktree_and_in_its_project() {
    let stack = Stack::start().await;
    project(&stack, "app", &repository()).await;
    let client = Client::new(&stack, "app");
    let mut worktrees = vec![];
    for name in ["first", "second"] {
        let made = client.post(PATH, json!({"name": name})).await;
        worktrees.push(Client::new(&stack, made["directory"].as_str().unwrap()));
    }
    let (first, second) = (&worktrees[0], &worktrees[1]);
    let mut of_first = Events::of(first, "/event", "").await;
    let mut of_second = Events::of(second, "/event", "").await;
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let asking = first.session(json!({"permission": [rule]})).await;
    first.prompt_async(&asking, &format!("{}\n@text over", bash("true"))).await;
    let asked = of_first.until_session("permission.asked", &asking).await;
    for (reader, want) in [(&client, true), (first, true), (second, false)] {
        let requests = reader.get("/permission").await;
        let mut requests_of = requests.as_array().unwrap().iter().map(|request| &request["sessionID"]);
        assert_eq!(requests_of.any(|of| *of == asking.as_str()), want, "{}: {requests}", reader.directory);
        let status = reader.get("/session/status").await;
        assert_eq!(status[&asking]["type"] == "busy", want, "{}: {status}", reader.directory);
    }

    let other = second.session(json!({})).await;
    second.prompt(&other, "@text done").await;
    of_second.until_session("session.idle", &other).await;
    assert!(!json!(of_second.seen).to_string().contains(&asking), "another worktree");
    let reply = format!("/permission/{}/reply", asked["properties"]["id"].as_str().unwrap());
    assert_eq!(first.post(&reply, json!({"reply": "once"})).await, true);
    of_first.until_session("session.idle", &asking).await;
    assert!(!json!(of_first.seen).to_string().contains(&other), "another worktree");
}

#[tokio::test]
async fn files_and_terminals_in_a_worktree_are_those_of_its_newest_session() {
    let stack = Stack::start().await;
    project(&stack, "app", &repository()).await;
    let client = Client::new(&stack, "app");
    let mut worktrees = vec![];
    for name in ["first", "second"] {
        let made = client.post(PATH, json!({"name": name})).await;
        let worktree = Client::new(&stack, made["directory"].as_str().unwrap());
        let session = worktree.session(json!({})).await;
        worktree.prompt(&session, &format!("{}\n@text done", bash(&format!("echo {name} > own.txt")))).await;
        worktrees.push(worktree);
    }
    let content = async |worktree: &Client, path: &str| {
        worktree.get(&format!("/file/content?path={path}")).await["content"].clone()
    };
    for (worktree, name, other) in [(&worktrees[0], "first", "second"), (&worktrees[1], "second", "first")] {
        assert_eq!(content(worktree, "own.txt").await, format!("{name}\n"));
        let listed = worktree.get("/file?path=.").await;
        assert!(listed.as_array().unwrap().iter().any(|node| node["name"] == "own.txt"), "{listed}");
        let found = worktree.get(&format!("/find?pattern={name}")).await;
        assert_eq!(found[0]["path"]["text"], "own.txt", "{found}");
        assert_eq!(worktree.get(&format!("/find?pattern={other}")).await, json!([]));
        assert_eq!(worktree.get("/find/file?query=own").await, json!(["own.txt"]));
    }
    let (first, second) = (&worktrees[0], &worktrees[1]);
    let command = json!({"command": "/bin/bash", "args": ["-c", "echo typed > typed.txt; cat"]});
    let terminal = first.post("/pty", command).await;
    testkit::eventually("the terminal writes", async || content(first, "typed.txt").await == "typed\n").await;
    assert_eq!(content(second, "typed.txt").await, "", "the files of another worktree");
    assert_eq!(first.get("/pty").await, json!([terminal]));
    assert_eq!(second.get("/pty").await, json!([]));
}

#[tokio::test]
async fn lost_files_of_a_worktree_begin_on_its_branch_again_if_the_project_says_so() {
    let mut stack = Stack::start().await;
    let project_id = project(&stack, "app", &repository()).await;
    let document = r#"{"lost_workspace": "restart"}"#.to_owned();
    stack.api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await.unwrap();
    let made = Client::new(&stack, "app").post(PATH, json!({"name": "pushed"})).await;
    let worktree = Client::new(&stack, made["directory"].as_str().unwrap());
    let session = worktree.session(json!({})).await;
    worktree.prompt(&session, &format!("{}\n@text done", bash("echo lost > a.txt"))).await;
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    let again = files(&worktree, &session).await;
    assert!(again.contains("opencode/pushed\nfrom the branch"), "{again}");
}

/// The worktrees that gRPC lists.
async fn listed(stack: &Stack, project_id: &str) -> Vec<v1::Worktree> {
    let request = v1::ListWorktreesRequest { project_id: project_id.to_owned() };
    stack.api.projects().list_worktrees(request).await.unwrap().into_inner().worktrees
}

#[tokio::test]
async fn both_ways_in_manage_the_same_worktrees() {
    let stack = Stack::start().await;
    let project_id = project(&stack, "app", &repository()).await;
    let (client, mut projects) = (Client::new(&stack, "app"), stack.api.projects());
    let create =
        |name: &str| v1::CreateWorktreeRequest { project_id: project_id.clone(), name: name.to_owned() };
    let made = projects.create_worktree(create("Fix it")).await.unwrap().into_inner().worktree.unwrap();
    let [directory, name, branch] =
        ["app.worktrees/fix-it", "fix-it", "opencode/fix-it"].map(ToOwned::to_owned);
    assert_eq!(made, v1::Worktree { directory: directory.clone(), name, branch });
    assert_eq!(client.get(PATH).await, json!([directory]));
    let other = client.post(PATH, json!({"name": "other"})).await["directory"].as_str().unwrap().to_owned();
    let directories: Vec<String> =
        listed(&stack, &project_id).await.into_iter().map(|worktree| worktree.directory).collect();
    assert_eq!(directories, [directory.clone(), other.clone()]);
    let begin = |worktree: &str| v1::CreateSessionRequest {
        project_id: project_id.clone(),
        worktree: worktree.to_owned(),
        ..Default::default()
    };
    let begun = stack.api.sessions().create_session(begin(&directory)).await.unwrap().into_inner();
    let begun = begun.session.unwrap().id;
    let worktree = Client::new(&stack, &directory);
    assert_eq!(sessions(&worktree).await, BTreeSet::from([begun.clone()]));
    assert_eq!(files(&worktree, &begun).await, "opencode/fix-it\nfrom main");
    let unknown = stack.api.sessions().create_session(begin("app.worktrees/none")).await;
    assert_refused(unknown, Code::InvalidArgument, "worktree_unknown");
    let reset = v1::ResetWorktreeRequest { project_id: project_id.clone(), directory: directory.clone() };
    let reset = projects.reset_worktree(reset).await.unwrap().into_inner().worktree.unwrap();
    assert!(reset.branch.starts_with("opencode/fix-it-"), "{reset:?}");
    assert_eq!(listed(&stack, &project_id).await[0], reset);
    let remove = |directory: &str| v1::RemoveWorktreeRequest {
        project_id: project_id.clone(),
        directory: directory.to_owned(),
    };
    projects.remove_worktree(remove(&other)).await.unwrap();
    assert_eq!(client.get(PATH).await, json!([directory]));
    let gone = projects.remove_worktree(remove(&other)).await;
    assert_refused(gone, Code::InvalidArgument, "worktree_unknown");
    // That of another project.
    let elsewhere = project(&stack, "elsewhere", &repository()).await;
    let foreign = v1::RemoveWorktreeRequest { project_id: elsewhere, directory };
    assert_refused(projects.remove_worktree(foreign).await, Code::InvalidArgument, "worktree_unknown");
    assert_refused(
        projects.create_worktree(create(&"x".repeat(65))).await,
        Code::InvalidArgument,
        "name_too_long",
    );
}

#[tokio::test]
async fn refusals_of_worktrees_say_what_is_wrong() {
    let stack = Stack::start().await;
    project(&stack, "app", &repository()).await;
    let (client, empty) = (Client::new(&stack, "app"), Client::new(&stack, "empty"));
    assert_eq!(code(&empty, Method::POST, PATH, json!({})).await, "directory_unknown");
    empty.session(json!({})).await;
    assert_eq!(code(&empty, Method::POST, PATH, json!({})).await, "worktree_source_missing");
    let command = json!({"startCommand": "npm install"});
    assert_eq!(code(&client, Method::POST, PATH, command).await, "start_command_unsupported");
    let long = json!({"name": "x".repeat(65)});
    assert_eq!(code(&client, Method::POST, PATH, long).await, "name_too_long");
    assert_eq!(client.get(PATH).await, json!([]));

    let mut directories = BTreeSet::new();
    for name in ["fix", "fix", "", "/"] {
        let made = client.post(PATH, json!({"name": name})).await;
        let begin = if name == "fix" { "app.worktrees/fix" } else { "app.worktrees/worktree-" };
        let directory = made["directory"].as_str().unwrap();
        assert!(directory.starts_with(begin), "{made}");
        assert!(directories.insert(directory.to_owned()), "a directory of its own: {made}");
    }
    let hiding = v1::CreateProjectRequest { name: "app.worktrees/fix".to_owned(), ..Default::default() };
    let refused = stack.api.projects().create_project(hiding).await;
    let message = assert_refused(refused, Code::InvalidArgument, "name_invalid");
    assert!(message.contains("a worktree of the project app"), "{message}");
    for _ in directories.len()..WORKTREES_MAX {
        client.post(PATH, json!({})).await;
    }
    assert_eq!(code(&client, Method::POST, PATH, json!({})).await, "worktrees_too_many");

    // To another tenant, the directories are unknown.
    let stranger = Client { key: stack.other_tenant().await.key, ..client.clone() };
    stranger.session(json!({})).await;
    assert_eq!(stranger.get(PATH).await, json!([]));
    let named = json!({"directory": directories.first().unwrap()});
    for (method, path) in [(Method::DELETE, PATH), (Method::POST, RESET)] {
        assert_eq!(code(&stranger, method, path, named.clone()).await, "worktree_unknown");
    }
    let inside = Client { directory: directories.first().unwrap().clone(), ..stranger.clone() };
    assert_eq!(inside.get("/project/current").await["sandboxes"], json!([]));
    assert_eq!(client.get(PATH).await.as_array().unwrap().len(), WORKTREES_MAX);
}
