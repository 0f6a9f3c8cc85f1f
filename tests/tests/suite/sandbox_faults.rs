//! What a session makes of files, commands and repositories that are not what the model expects, and of a sandbox
//! service that is away.

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

/// A directive that calls bash.
fn bash(command: &str) -> String {
    format!("@tool bash {}\n", json!({"command": command}))
}

/// A session on a repository by its URL.
async fn session_at(stack: &Stack, url: &str, revision: &str) -> Result<String, tonic::Status> {
    let from = Some(v1::source::From::GitUrl(url.to_owned()));
    let source = v1::Source { from, revision: revision.to_owned() };
    Ok(stack.api.try_session(Some(source)).await?.id)
}

/// Runs calls side by side after `before`, and checks what the model was told of each.
async fn check_calls(stack: &Stack, before: &str, calls: &[(&str, Value, &str, &str)]) -> String {
    let session = stack.session().await;
    let mut prompt = format!("{before}@tools\n");
    for (tool, input, _, _) in calls {
        prompt.push_str(&format!("@tool {tool} {input}\n"));
    }
    let (outcome, seen) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
    let made = stack.api.tool_calls(&session).await;
    let made = &made[made.len() - calls.len()..];
    for (call, (tool, input, status, text)) in made.iter().zip(calls) {
        assert_eq!((call.tool.as_str(), call.status.as_str()), (*tool, *status), "{input}: {}", call.said);
        assert!(call.said.contains(text), "{tool} {input}: wanted {text:?} in {:?}", call.said);
    }
    assert_works(&stack.api, &session).await;
    session
}

/// Fails unless no process of the session's sandbox has `pattern` (written so that it does not match itself).
async fn assert_gone(stack: &Stack, session: &str, pattern: &str) {
    let (outcome, _) = run(&stack.api, session, &bash(&format!("pgrep -f '{pattern}' || echo none"))).await;
    assert_eq!(outcome, "done");
    assert_eq!(stack.api.tool_calls(session).await.last().unwrap().said, "none\n", "{pattern}");
}

#[tokio::test]
async fn repositories_that_cannot_be_had_end_the_turn_and_say_why() {
    let stack = Stack::start().await;
    let root = stack.repositories.display().to_string();
    let repository = testkit::git::repository(&[("a.txt", "a\n")]);
    repository.git(&["clone", "--quiet", "--bare", ".", &format!("{root}/real.git")]);
    std::fs::create_dir(stack.repositories.join("plain")).unwrap();
    let check = async |url: String, revision: &str, code: &str| {
        let session = session_at(&stack, &url, revision).await.unwrap();
        let (outcome, seen) = run(&stack.api, &session, "@text I need no file.").await;
        assert_eq!(outcome, "failed", "{url}");
        let error = seen.error().unwrap();
        assert_eq!(error["name"], "WorkspaceError", "{url}: {error}");
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
    // Nothing of the machine's own network is cloned from, whatever it would answer.
    check("https://127.0.0.1:9/a.git".to_owned(), "", "url_not_allowed").await;
    check("https://user:secret@example.com/a.git".to_owned(), "", "url_not_allowed").await;
    check(format!("file://{root}/real.git"), "no-such-branch", "revision_not_found").await;
    check(format!("file://{root}/real.git"), "main..main", "revision_not_found").await;
    check(format!("file://{root}/real.git"), &"0123456789".repeat(4), "revision_not_found").await;
    for hostile in ["ext::sh -c id", "git://h/r", "/etc", "--upload-pack=id", "https://a b/c", "http://h/r"] {
        assert_refused(session_at(&stack, hostile, "").await, Code::InvalidArgument, "url_not_allowed");
    }
    let hostile = session_at(&stack, &format!("file://{root}/real.git"), "--upload-pack=id").await;
    assert_refused(hostile, Code::InvalidArgument, "revision_invalid");
    let session = session_at(&stack, &format!("file://{root}/later.git"), "main").await.unwrap();
    assert_eq!(run(&stack.api, &session, "@text too early").await.0, "failed");
    repository.git(&["clone", "--quiet", "--bare", ".", &format!("{root}/later.git")]);
    assert_eq!(run(&stack.api, &session, &bash("cat a.txt")).await.0, "done", "the repository is there now");
    assert_eq!(stack.api.tool_calls(&session).await[0].said, "a\n");
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
async fn files_that_a_tool_cannot_use_are_told_to_the_model() {
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
async fn a_command_out_of_time_ends_with_everything_that_it_started() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let endless = |command: &str| format!("@tool bash {}\n", json!({"command": command, "timeout": 300}));
    let prompt = format!(
        "@tools\n{}{}",
        endless("setsid sleep 98701 & echo begun; sleep 98702"),
        endless("trap '' TERM; (trap '' TERM; setsid sleep 98703) & sleep 98704"),
    );
    assert_eq!(run(&stack.api, &session, &prompt).await.0, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].said.starts_with("begun\n"), "what it printed is kept: {:?}", calls[0]);
    for call in &calls {
        assert_eq!(call.status, "completed");
        assert!(call.said.contains("stopped after"), "{call:?}");
    }
    assert_gone(&stack, &session, "slee[p] 9870").await;
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_the_session_goes_on() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let bomb = json!({"command": "b() { b | b & b; }; b", "timeout": 1_000});
    let prompt = format!(
        "@tool bash {bomb}\n@tool write {}\n",
        json!({"filePath": "/workspace/after", "content": "x"})
    );
    let (outcome, seen) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].said.len() <= limits::TOOL_OUTPUT_BYTES_MAX, "{}", calls[0].said.len());
    assert_eq!(calls[1].status, "completed", "files can be written whatever runs: {:?}", calls[1]);
    assert_works(&stack.api, &session).await;
    // The last of the bomb may just be being buried.
    testkit::eventually("commands run again", async || {
        let (outcome, _) = run(&stack.api, &session, &bash("ls; echo alive")).await;
        let calls = stack.api.tool_calls(&session).await;
        outcome == "done" && calls.last().unwrap().said == "after\nalive\n"
    })
    .await;
}

#[tokio::test]
async fn endless_output_is_bounded_and_says_where_the_rest_is() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let endless = json!({"command": "yes", "timeout": 1_000});
    let (outcome, seen) = run(&stack.api, &session, &format!("@tool bash {endless}\n")).await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
    for event in &seen.events {
        let bytes = event.properties.to_string().len();
        // Output twice: as the answer and live, each line end escaped.
        assert!(bytes < 4 * limits::TOOL_OUTPUT_BYTES_MAX, "{} with {bytes} bytes", event.kind);
    }
    let said = stack.api.tool_calls(&session).await[0].said.clone();
    assert!(said.len() <= limits::TOOL_OUTPUT_BYTES_MAX, "{}", said.len());
    let rest = said.split("the whole output is in ").nth(1).expect("where the rest is");
    let path = rest.split([' ', '\n', ')']).next().unwrap();
    assert!(said.contains("stopped after"), "{}", domain::text::tail(&said, 300));
    let read = format!("@tool read {}\n", json!({"filePath": path, "offset": 1000, "limit": 2}));
    assert_eq!(run(&stack.api, &session, &read).await.0, "done");
    let read = stack.api.tool_calls(&session).await.pop().unwrap();
    assert!(read.said.starts_with("1000: y\n1001: y\n"), "{read:?}");
}

#[tokio::test]
async fn an_abort_ends_a_running_command_at_once() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &bash("setsid sleep 76501 & echo begun; sleep 76502")).await.unwrap();
    watch.until_shown("begun").await;
    let asked_at = Instant::now();
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    watch.seen.assert_gap_free();
    let part = stack.api.conversation(&session).await.pop().unwrap().1;
    let part = part.iter().find(|part| part["type"] == "tool").unwrap();
    assert_eq!(part["state"]["status"], "error");
    assert_eq!(part["state"]["metadata"]["interrupted"], true);
    assert_gone(&stack, &session, "slee[p] 7650").await;
}

/// Whoever takes the turn over ends what it finds, also when it has nothing to do with it but to store the abort.
#[tokio::test]
async fn an_abort_ends_what_a_worker_that_died_began() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@tool bash {\"command\":\"echo begun; sleep 4321\"}").await.unwrap();
    watch.until_shown("begun").await;
    stack.crash_worker(0);
    stack.api.abort(&session).await.unwrap();
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "aborted");
    assert_gone(&stack, &session, "slee[p] 4321").await;
}

#[tokio::test]
async fn a_sandbox_that_is_away_for_a_moment_costs_only_time() {
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
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls[1].said, "kept\n", "the workspace is still there");
    assert_eq!(calls[2].said, "1: kept\n");
}

#[tokio::test]
async fn a_command_that_is_lost_with_the_sandbox_is_told_to_the_model() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &bash("echo begun; sleep 50")).await.unwrap();
    watch.until_shown("begun").await;
    stack.stop_sandbox().await;
    stack.start_sandbox().await;
    assert_eq!(watch.until_idle().await, "done");
    let call = stack.api.tool_calls(&session).await.remove(0);
    assert_eq!(call.status, "error");
    assert!(call.said.starts_with("begun\n") && call.said.contains("the sandbox stopped"), "{call:?}");
    assert_works(&stack.api, &session).await;
}
