//! Files, commands and repositories that differ from what the model expects, and a sandbox service that is down.

use domain::limits;
use e2e::{
    Stack,
    api::assert_refused,
    turn::{Watch, assert_works, run},
};
use rpc::v1;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tonic::Code;

/// Returns a directive that calls bash.
fn bash(command: &str) -> String {
    format!("@tool bash {}\n", json!({"command": command}))
}

/// Creates a session on a repository by its URL.
async fn session_at(stack: &Stack, url: &str, revision: &str) -> Result<String, tonic::Status> {
    let from = Some(v1::source::From::GitUrl(url.to_owned()));
    let source = v1::Source { from, revision: revision.to_owned() };
    Ok(stack.api.try_session(Some(source)).await?.id)
}

/// Runs calls in parallel after `before`, and checks the result of each that the model receives.
async fn check_calls(stack: &Stack, before: &str, calls: &[(&str, Value, &str, &str)]) -> String {
    let session = stack.session().await;
    let mut prompt = format!("{before}@tools\n");
    for (tool, input, _, _) in calls {
        prompt.push_str(&format!("@tool {tool} {input}\n"));
    }
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let tool_calls = stack.api.tool_calls(&session).await;
    let tool_calls = &tool_calls[tool_calls.len() - calls.len()..];
    for (call, (tool, input, status, text)) in tool_calls.iter().zip(calls) {
        assert_eq!((call.tool.as_str(), call.status.as_str()), (*tool, *status), "{input}: {}", call.result);
        assert!(call.result.contains(text), "{tool} {input}: wanted {text:?} in {:?}", call.result);
    }
    assert_works(&stack.api, &session).await;
    session
}

/// Asserts that no process of the session's sandbox matches `pattern` (written so that it does not match itself).
async fn assert_gone(stack: &Stack, session: &str, pattern: &str) {
    let (outcome, _) = run(&stack.api, session, &bash(&format!("pgrep -f '{pattern}' || echo none"))).await;
    assert_eq!(outcome, "done");
    assert_eq!(stack.api.tool_calls(session).await.last().unwrap().result, "none\n", "{pattern}");
}

#[tokio::test]
async fn unavailable_repositories_end_the_turn_with_the_reason() {
    let stack = Stack::start().await;
    let root = stack.repositories.display().to_string();
    let repository = testkit::git::repository(&[("a.txt", "a\n")]);
    repository.git(&["clone", "--quiet", "--bare", ".", &format!("{root}/real.git")]);
    std::fs::create_dir(stack.repositories.join("plain")).unwrap();
    let check = async |url: String, revision: &str, code: &str| {
        let session = session_at(&stack, &url, revision).await.unwrap();
        let (outcome, transcript) = run(&stack.api, &session, "@text I need no file.").await;
        assert_eq!(outcome, "failed", "{url}");
        let error = transcript.error().unwrap();
        assert_eq!(
            (&error["name"], &error["data"]["ref"]),
            (&"UnknownError".into(), &code.into()),
            "{url}: {error}"
        );
        let message = error["data"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("({code})")), "{url} {revision}: {message}");
        let (outcome, _) = run(&stack.api, &session, "@text again").await;
        assert_eq!(outcome, "failed", "{url}: tried again, and still not there");
    };
    check(format!("file://{root}/missing.git"), "", "repository_not_found").await;
    check(format!("file://{root}/plain"), "", "repository_not_found").await;
    check(format!("file://{root}/../../etc"), "", "url_not_allowed").await;
    check("file:///etc".to_owned(), "", "url_not_allowed").await;
    check("ssh://git@example.com/a.git".to_owned(), "", "url_not_allowed").await;
    // Addresses of the machine's own network are refused before a connection.
    check("https://127.0.0.1:9/a.git".to_owned(), "", "url_not_allowed").await;
    check(format!("file://{root}/real.git"), "no-such-branch", "revision_not_found").await;
    check(format!("file://{root}/real.git"), "main..main", "revision_not_found").await;
    check(format!("file://{root}/real.git"), &"0123456789".repeat(4), "revision_not_found").await;
    for hostile in ["ext::sh -c id", "git://h/r", "/etc", "--upload-pack=id", "https://a b/c", "http://h/r"] {
        assert_refused(session_at(&stack, hostile, "").await, Code::InvalidArgument, "url_not_allowed");
    }
    let leak = session_at(&stack, "https://user:hunter2@example.com/a.git", "").await;
    let message = assert_refused(leak, Code::InvalidArgument, "url_not_allowed");
    assert!(!message.contains("hunter2"), "{message}");
    let hostile = session_at(&stack, &format!("file://{root}/real.git"), "--upload-pack=id").await;
    assert_refused(hostile, Code::InvalidArgument, "revision_invalid");
    let session = session_at(&stack, &format!("file://{root}/later.git"), "main").await.unwrap();
    assert_eq!(run(&stack.api, &session, "@text too early").await.0, "failed");
    repository.git(&["clone", "--quiet", "--bare", ".", &format!("{root}/later.git")]);
    assert_eq!(run(&stack.api, &session, &bash("cat a.txt")).await.0, "done", "the repository now exists");
    assert_eq!(stack.api.tool_calls(&session).await[0].result, "a\n");
}

#[tokio::test]
async fn no_file_tool_leaves_the_workspace() {
    let stack = Stack::start().await;
    let before =
        bash("ln -s /etc/passwd link; ln -s /etc up; mkdir in; ln -s ../in in/self; echo fine > in/file");
    let outside = "outside the workspace";
    check_calls(
        &stack,
        &before,
        &[
            ("read", json!({"filePath": "/etc/passwd"}), "error", outside),
            ("read", json!({"filePath": "../etc/passwd"}), "error", outside),
            ("read", json!({"filePath": "/workspace/../etc/passwd"}), "error", outside),
            ("read", json!({"filePath": "/workspace/link"}), "error", outside),
            ("read", json!({"filePath": "/workspace/up/passwd"}), "error", outside),
            ("read", json!({"filePath": "/proc/self/environ"}), "error", outside),
            ("read", json!({"filePath": "/workspace/in/self/file"}), "completed", "1: fine"),
            ("write", json!({"filePath": "/etc/x", "content": "x"}), "error", outside),
            ("write", json!({"filePath": "/tmp/x", "content": "x"}), "error", outside),
            ("write", json!({"filePath": "/workspace/up/x", "content": "x"}), "error", outside),
            ("write", json!({"filePath": "/workspace/../../x", "content": "x"}), "error", outside),
            (
                "edit",
                json!({"filePath": "/etc/passwd", "oldString": "root", "newString": "x"}),
                "error",
                outside,
            ),
            ("edit", json!({"filePath": "/etc/new", "oldString": "", "newString": "x"}), "error", ""),
            ("list", json!({"path": "/etc"}), "error", outside),
            ("list", json!({"path": "/workspace/up"}), "error", outside),
            ("glob", json!({"pattern": "*", "path": "/etc"}), "error", outside),
            ("glob", json!({"pattern": "../../etc/*"}), "completed", "No files found"),
            ("grep", json!({"pattern": "root", "path": "/etc"}), "error", outside),
            ("grep", json!({"pattern": "root", "path": "/workspace/link"}), "error", outside),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_model_learns_of_unusable_files() {
    let stack = Stack::start().await;
    let before = bash(
        "printf 'a\\0b' > bin; printf 'a\\xffb' > latin; truncate -s 2G big; mkdir dir; mkfifo pipe; ln -s b a; ln -s a b",
    );
    let path = |name: &str| format!("/workspace/{name}");
    let change = |name: &str| json!({"filePath": path(name), "oldString": "a", "newString": "c"});
    let begun = Instant::now();
    check_calls(
        &stack,
        &before,
        &[
            ("read", json!({"filePath": path("bin")}), "error", "neither text nor a picture"),
            ("read", json!({"filePath": path("big")}), "error", "neither text nor a picture"),
            ("read", json!({"filePath": path("pipe")}), "error", "not a file"),
            ("read", json!({"filePath": path("a")}), "error", "loop"),
            ("read", json!({"filePath": path("missing")}), "error", "there is no file"),
            ("read", json!({"filePath": path("zero\0byte")}), "error", "there is no file"),
            ("read", json!({"filePath": path(&"x".repeat(5_000))}), "error", "path"),
            ("read", json!({"filePath": path("dir")}), "completed", ""),
            ("edit", change("big"), "error", "too large"),
            ("edit", change("latin"), "error", "not UTF-8"),
            ("edit", change("dir"), "error", "directory"),
            ("edit", change("missing"), "error", "there is no file"),
            ("write", json!({"filePath": path("dir"), "content": "x"}), "error", "directory"),
            ("write", json!({"filePath": path("pipe"), "content": "x"}), "error", "not a file"),
            ("write", json!({"filePath": path("bin/x"), "content": "x"}), "error", ""),
            ("grep", json!({"pattern": "a", "path": path("big")}), "completed", "left out"),
            ("grep", json!({"pattern": "("}), "error", "the pattern"),
            ("grep", json!({"pattern": "a", "path": path("missing")}), "error", "there is no file"),
            ("glob", json!({"pattern": "["}), "error", "the pattern"),
            ("glob", json!({"pattern": "*", "path": path("missing")}), "error", "there is no file"),
            ("list", json!({"path": path("missing")}), "error", "there is no file"),
            ("list", json!({"path": path("bin")}), "error", "not a directory"),
            ("bash", json!({"command": "true", "workdir": path("missing")}), "error", ""),
        ],
    )
    .await;
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "two sparse gigabytes were read: {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_command_that_times_out_ends_with_its_descendants() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let endless = |command: &str| format!("@tool bash {}\n", json!({"command": command, "timeout": 2_000}));
    let prompt = format!(
        "@tools\n{}{}",
        endless("setsid sleep 98701 & echo begun; sleep 98702"),
        endless("trap '' TERM; (trap '' TERM; setsid sleep 98703) & sleep 98704"),
    );
    assert_eq!(run(&stack.api, &session, &prompt).await.0, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].result.starts_with("begun\n"), "what it printed is kept: {:?}", calls[0]);
    for call in &calls {
        assert_eq!(call.status, "completed");
        assert!(call.result.contains("stopped after"), "{call:?}");
    }
    assert_gone(&stack, &session, "slee[p] 9870").await;
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_the_session_continues() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let bomb = json!({"command": "b() { b | b & b; }; b", "timeout": 1_000});
    let prompt = format!(
        "@tool bash {bomb}\n@tool write {}\n",
        json!({"filePath": "/workspace/after", "content": "x"})
    );
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].result.len() <= limits::TOOL_OUTPUT_BYTES_MAX, "{}", calls[0].result.len());
    assert_eq!(calls[1].status, "completed", "files can be written whatever runs: {:?}", calls[1]);
    assert_works(&stack.api, &session).await;
    // The last processes of the bomb may still be exiting.
    testkit::eventually("commands run again", async || {
        let (outcome, _) = run(&stack.api, &session, &bash("ls; echo alive")).await;
        let calls = stack.api.tool_calls(&session).await;
        outcome == "done" && calls.last().unwrap().result == "after\nalive\n"
    })
    .await;
}

#[tokio::test]
async fn endless_output_is_bounded_and_names_the_file_with_the_rest() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let endless = json!({"command": "yes", "timeout": 1_000});
    let (outcome, transcript) = run(&stack.api, &session, &format!("@tool bash {endless}\n")).await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    for event in &transcript.events {
        let bytes = event.properties.to_string().len();
        // The output occurs twice: as the answer and as live output, each line end escaped.
        assert!(bytes < 4 * limits::TOOL_OUTPUT_BYTES_MAX, "{} with {bytes} bytes", event.kind);
    }
    let output = stack.api.tool_calls(&session).await[0].result.clone();
    assert!(output.len() <= limits::TOOL_OUTPUT_BYTES_MAX, "{}", output.len());
    let rest =
        output.split("the whole output is in ").nth(1).expect("the result names the file with the rest");
    let path = rest.split([' ', '\n', ')']).next().unwrap();
    assert!(output.contains("stopped after"), "{}", domain::text::tail(&output, 300));
    let read = format!("@tool read {}\n", json!({"filePath": path, "offset": 1000, "limit": 2}));
    assert_eq!(run(&stack.api, &session, &read).await.0, "done");
    let read = stack.api.tool_calls(&session).await.pop().unwrap();
    assert!(read.result.starts_with("1000: y\n1001: y\n"), "{read:?}");
}

#[tokio::test]
async fn an_abort_ends_a_running_command_at_once() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &bash("setsid sleep 76501 & echo begun; sleep 76502")).await.unwrap();
    watch.until_output("begun").await;
    let asked_at = Instant::now();
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    watch.transcript.assert_gap_free();
    let part = stack.api.conversation(&session).await.pop().unwrap().1;
    let part = part.iter().find(|part| part["type"] == "tool").unwrap();
    assert_output_kept(&part["state"]);
    assert_gone(&stack, &session, "slee[p] 7650").await;
}

/// An aborted command tells the model and clients what it printed.
fn assert_output_kept(state: &Value) {
    assert_eq!((&state["status"], &state["metadata"]["output"]), (&json!("completed"), &json!("begun\n")));
    let note = "begun\n\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>";
    assert_eq!(state["output"], note, "{state}");
}

/// The worker that takes the turn over ends its commands, even if it only has to store the abort.
#[tokio::test]
async fn an_abort_ends_the_command_of_a_dead_worker() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@tool bash {\"command\":\"echo begun; sleep 4321\"}").await.unwrap();
    watch.until_output("begun").await;
    stack.crash_worker(0);
    stack.api.abort(&session).await.unwrap();
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "aborted");
    let part = stack.api.conversation(&session).await.pop().unwrap().1;
    assert_output_kept(&part.iter().find(|part| part["type"] == "tool").unwrap()["state"]);
    assert_gone(&stack, &session, "slee[p] 4321").await;
}

#[tokio::test]
async fn a_short_outage_of_the_sandbox_costs_only_time() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    assert_eq!(run(&stack.api, &session, &bash("echo kept > file")).await.0, "done");
    stack.stop_sandbox().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    watch.until_idle().await;
    stack
        .api
        .prompt(&session, &format!("{}@tool read {{\"filePath\":\"file\"}}\n", bash("cat file")))
        .await
        .unwrap();
    watch.until_tool("running").await;
    let diff = stack
        .api
        .sessions()
        .get_session_diff(v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() })
        .await;
    assert_refused(diff, Code::Unavailable, "sandbox_unavailable");
    stack.start_sandbox().await;
    assert_eq!(watch.until_idle().await, "done");
    let body = stack.model.journal.requests().pop().unwrap().body.to_string();
    assert!(body.contains("Before this command the sandbox was cleaned"), "the model is told: {body}");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[1].result, "kept\n", "the workspace still exists");
    assert_eq!(calls[2].result, "1: kept\n");
}

#[tokio::test]
async fn the_model_learns_of_a_command_that_was_lost_with_the_sandbox() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &bash("echo begun; sleep 50")).await.unwrap();
    watch.until_output("begun").await;
    stack.stop_sandbox().await;
    stack.start_sandbox().await;
    assert_eq!(watch.until_idle().await, "done");
    let call = stack.api.tool_calls(&session).await.remove(0);
    assert_eq!(call.status, "error");
    assert!(call.result.starts_with("begun\n") && call.result.contains("the sandbox stopped"), "{call:?}");
    assert_works(&stack.api, &session).await;
}

#[tokio::test]
async fn lost_files_are_never_replaced_without_a_persons_word() {
    let mut stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("original", "from the source\n")])).await;
    assert_eq!(run(&stack.api, &session, &bash("echo work > new; rm original")).await.0, "done");
    let restart = async |stack: &Stack| {
        let request = v1::RestartWorkspaceRequest { session_id: session.clone() };
        stack.api.sessions().restart_workspace(request).await
    };
    assert_refused(restart(&stack).await, Code::InvalidArgument, "workspace_not_lost");

    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    let mut sessions = stack.api.sessions();
    let diff = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
    assert_refused(sessions.get_session_diff(diff).await, Code::FailedPrecondition, "workspace_lost");
    let fork = v1::ForkSessionRequest { session_id: session.clone(), ..Default::default() };
    assert_refused(sessions.fork_session(fork).await, Code::FailedPrecondition, "workspace_lost");
    let export = v1::ExportSessionRequest { session_id: session.clone(), squash: false };
    let mut pieces = sessions.export_session(export).await.unwrap().into_inner();
    assert_refused(pieces.message().await, Code::FailedPrecondition, "workspace_lost");
    let message_id = stack.api.conversation(&session).await[0].0["id"].as_str().unwrap().to_owned();
    let revert = v1::RevertSessionRequest { session_id: session.clone(), message_id, part_id: String::new() };
    assert_refused(sessions.revert_session(revert).await, Code::FailedPrecondition, "workspace_lost");
    for _ in 0..2 {
        let (outcome, transcript) = run(&stack.api, &session, &bash("ls")).await;
        assert_eq!(outcome, "failed");
        assert!(
            transcript.error().unwrap().to_string().contains("workspace_lost"),
            "{:?}",
            transcript.error()
        );
    }

    restart(&stack).await.unwrap();
    let (outcome, _) = run(&stack.api, &session, &bash("ls; cat original")).await;
    assert_eq!(outcome, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls.last().unwrap().result, "original\nfrom the source\n");
    let requests = stack.model.journal.requests();
    let body = requests.last().unwrap().body.to_string();
    assert!(
        body.contains("The machine that held the files of this session lost them"),
        "the model is told: {body}"
    );
    let mut log = Watch::start(&stack.api, &session).await;
    log.until(|event| event.kind == "flotilla.workspace.restarted").await;
}

/// A machine that was replaced comes back from a backup.
#[tokio::test]
async fn an_old_copy_of_files_that_were_started_again_counts_as_lost() {
    let mut stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("original", "from the source\n")])).await;
    assert_eq!(run(&stack.api, &session, &bash("echo old > work")).await.0, "done");
    stack.stop_sandbox().await;
    let backup = stack.sandbox_data().with_extension("backup");
    std::fs::rename(stack.sandbox_data(), &backup).unwrap();
    stack.start_sandbox().await;
    let request = v1::RestartWorkspaceRequest { session_id: session.clone() };
    stack.api.sessions().restart_workspace(request.clone()).await.unwrap();
    assert_eq!(run(&stack.api, &session, &bash("echo new > work")).await.0, "done");
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    std::fs::rename(&backup, stack.sandbox_data()).unwrap();
    stack.start_sandbox().await;
    let (outcome, transcript) = run(&stack.api, &session, &bash("cat work")).await;
    assert_eq!(outcome, "failed");
    assert!(transcript.error().unwrap().to_string().contains("workspace_lost"), "{:?}", transcript.error());
    let diff = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
    assert_refused(
        stack.api.sessions().get_session_diff(diff).await,
        Code::FailedPrecondition,
        "workspace_lost",
    );
    stack.api.sessions().restart_workspace(request).await.unwrap();
    assert_eq!(run(&stack.api, &session, &bash("ls")).await.0, "done");
    assert_eq!(stack.api.tool_calls(&session).await.last().unwrap().result, "original\n");
}

#[tokio::test]
async fn a_project_may_let_its_sessions_continue_without_lost_files() {
    let mut stack = Stack::start().await;
    let policy = v1::SetSettingsRequest {
        project_id: stack.api.project_id.clone(),
        document: r#"{"lost_workspace": "restart"}"#.to_owned(),
    };
    stack.api.settings().set_settings(policy).await.unwrap();
    let with_source = stack.session_on(&testkit::git::repository(&[("original", "from the source\n")])).await;
    let empty = stack.session().await;
    for session in [&with_source, &empty] {
        assert_eq!(run(&stack.api, session, &bash("echo work > new; rm -f original")).await.0, "done");
    }
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    for (session, files) in [(&with_source, "original\n"), (&empty, "(no output)")] {
        assert_eq!(run(&stack.api, session, &bash("ls")).await.0, "done");
        assert_eq!(stack.api.tool_calls(session).await.last().unwrap().result, files);
        let requests = stack.model.journal.requests();
        let body = requests.last().unwrap().body.to_string();
        assert!(body.contains("The settings of the project let the session continue"), "{body}");
        Watch::start(&stack.api, session)
            .await
            .until(|event| event.kind == "flotilla.workspace.restarted")
            .await;
        // Once, and only in the turn that found the files gone.
        assert_eq!(run(&stack.api, session, &bash("echo more >> original")).await.0, "done");
        assert_eq!(body.matches("lost them").count(), 1, "{body}");
    }
}
