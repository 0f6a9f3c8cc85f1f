//! Reverts: of files at once, of messages with the next prompt, and their undoing.

use super::{run_to_end, write};
use domain::{
    ids::{SessionId, TenantId},
    session::Revert,
};
use e2e::{
    Stack,
    api::assert_refused,
    turn::{Watch, bash, task},
};
use rpc::v1;
use serde_json::Value;
use sqlx::PgConnection;
use store::{Store, session::reverts::Hold};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

async fn revert(stack: &Stack, session: &str, message: &Value) -> Result<v1::Session, Status> {
    revert_part(stack, session, message, "").await
}

async fn revert_part(
    stack: &Stack,
    session: &str,
    message: &Value,
    part: &str,
) -> Result<v1::Session, Status> {
    let request = v1::RevertSessionRequest {
        session_id: session.to_owned(),
        message_id: message["id"].as_str().unwrap().to_owned(),
        part_id: part.to_owned(),
    };
    Ok(stack.api.sessions().revert_session(request).await?.into_inner().session.unwrap())
}

async fn unrevert(stack: &Stack, session: &str) -> Result<v1::Session, Status> {
    let request = v1::UnrevertSessionRequest { session_id: session.to_owned() };
    Ok(stack.api.sessions().unrevert_session(request).await?.into_inner().session.unwrap())
}

/// Compares the files with the first commit, without a prompt.
async fn files(stack: &Stack, session: &str) -> String {
    let request = v1::GetSessionDiffRequest { session_id: session.to_owned(), ..Default::default() };
    stack.api.sessions().get_session_diff(request).await.unwrap().into_inner().patch
}

/// Returns the prompts of a session.
async fn prompts(stack: &Stack, session: &str) -> Vec<Value> {
    let talk = stack.api.conversation(session).await;
    talk.into_iter().map(|(info, _)| info).filter(|info| info["role"] == "user").collect()
}

/// Returns the output of a command.
async fn command_output(stack: &Stack, session: &str, command: &str) -> String {
    run_to_end(stack, session, &format!("{}\n@text over", bash(command))).await;
    stack.api.tool_calls(session).await.pop().unwrap().result
}

/// Creates a session with two turns that changed files and a third that did not. Returns the snapshots after each.
async fn changed() -> (Stack, String, [String; 2]) {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[
        (".gitignore", "ignored\n"),
        ("a.txt", "one\n"),
        ("b.bin", "\0\u{1}\u{2}"),
        ("gone.txt", "was here\n"),
    ]);
    let session = stack.session_on(&repository).await;
    run_to_end(&stack, &session, &format!("{}\n@text over", write("first.txt", "1\n"))).await;
    let first = files(&stack, &session).await;
    let many = "echo two >> a.txt; printf '\\003\\000' > b.bin; rm gone.txt; mkdir d; echo n > d/new; echo i > ignored";
    run_to_end(&stack, &session, &format!("{}\n{}\n@text over", bash(many), write("a.txt", "three\n"))).await;
    let second = files(&stack, &session).await;
    run_to_end(&stack, &session, "@text nothing").await;
    (stack, session, [first, second])
}

#[tokio::test]
async fn a_revert_restores_files_at_once_and_can_be_undone() {
    let (stack, session, [first, second]) = changed().await;
    let prompts = prompts(&stack, &session).await;
    let before = stack.api.get(&session).await;
    let reverted = revert(&stack, &session, &prompts[1]).await.unwrap();
    assert_eq!(files(&stack, &session).await, first);
    let revert_point = reverted.revert.clone().unwrap();
    assert_eq!(
        (revert_point.message_id.as_str(), revert_point.part_id.as_str()),
        (prompts[1]["id"].as_str().unwrap(), "")
    );
    for line in
        ["-three\n+one\n", "+was here\n", "b/d/new\ndeleted file", "Binary files a/b.bin and b/b.bin differ"]
    {
        assert!(revert_point.diff.contains(line), "{line:?} in {}", revert_point.diff);
    }
    let summary = reverted.summary.unwrap();
    assert_eq!((summary.additions, summary.deletions, summary.files), (1, 0, 1));
    assert_eq!(stack.api.conversation(&session).await.len(), 9, "no message is removed yet");
    let again = revert(&stack, &session, &prompts[1]).await.unwrap();
    assert_eq!(again.revert, reverted.revert, "a repeated revert changes nothing");
    // A revert to another message starts from the state before the first revert.
    revert(&stack, &session, &prompts[0]).await.unwrap();
    assert_eq!(files(&stack, &session).await, "");
    revert(&stack, &session, &prompts[2]).await.unwrap();
    assert_eq!(files(&stack, &session).await, second);
    revert(&stack, &session, &prompts[1]).await.unwrap();
    let back = unrevert(&stack, &session).await.unwrap();
    assert_eq!(
        (files(&stack, &session).await, back.revert, back.summary),
        (second.clone(), None, before.summary)
    );
    unrevert(&stack, &session).await.unwrap();
    assert_eq!(files(&stack, &session).await, second, "no revert is left to undo");
    let look = "od -An -tx1 b.bin; cat ignored d/new a.txt; ls gone.txt 2>&1";
    let want = " 03 00\ni\nn\nthree\nls: cannot access 'gone.txt': No such file or directory\n";
    assert!(command_output(&stack, &session, look).await.starts_with(want));
}

#[tokio::test]
async fn the_next_prompt_removes_reverted_messages_and_ignored_files_stay() {
    let (stack, session, _) = changed().await;
    let talk = stack.api.conversation(&session).await;
    let prompts = prompts(&stack, &session).await;
    revert(&stack, &session, &prompts[1]).await.unwrap();
    let from = stack.api.get(&session).await.event_seq;
    let transcript = run_to_end(
        &stack,
        &session,
        &format!("{}\n@text over", bash("od -An -tx1 b.bin; cat ignored a.txt gone.txt; ls d")),
    )
    .await;
    let output = stack.api.tool_calls(&session).await.pop().unwrap().result;
    assert!(output.starts_with(" 00 01 02\ni\none\nwas here\nls: cannot access 'd'"), "{output}");
    let new: Vec<_> = transcript.events.iter().filter(|event| event.seq > from).take(8).collect();
    let kinds: Vec<&str> = new.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, [&["message.removed"; 6][..], &["session.updated", "message.updated"]].concat());
    let gone: Vec<&Value> = new.iter().take(6).map(|event| &event.properties["messageID"]).collect();
    let want: Vec<&Value> = talk[3..].iter().rev().map(|(info, _)| &info["id"]).collect();
    assert_eq!(gone, want, "the newest files come first");
    assert_eq!(new[6].properties["info"]["revert"], Value::Null);
    let after = stack.api.conversation(&session).await;
    assert_eq!(after[..3], talk[..3]);
    assert_eq!((after.len(), stack.api.get(&session).await.revert), (6, None));
    let request = stack.model.journal.requests().pop().unwrap().body.to_string();
    assert!(!request.contains("mkdir d"), "the model no longer receives it: {request}");
}

#[tokio::test]
async fn reverting_a_part_keeps_the_earlier_parts() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let both = format!("@tools\n{}\n@tool todoread {{}}\n@text over", write("b.txt", "2\n"));
    run_to_end(&stack, &session, &format!("{}\n{both}", write("c.txt", "3\n"))).await;
    let talk = stack.api.conversation(&session).await;
    let tools: Vec<&Value> = talk[2].1.iter().filter(|part| part["type"] == "tool").collect();
    let part = tools[1]["id"].as_str().unwrap();
    let reverted = revert_part(&stack, &session, &talk[2].0, part).await.unwrap();
    assert_eq!(reverted.revert.unwrap().part_id, part);
    let left = files(&stack, &session).await;
    assert!(
        left.contains("c.txt") && !left.contains("b.txt"),
        "the files of a step are reverted together: {left}"
    );
    run_to_end(&stack, &session, "@text on").await;
    let after = stack.api.conversation(&session).await;
    let kinds: Vec<&str> = after[2].1.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!((after.len(), kinds), (5, vec!["step-start", "tool"]));
}

#[tokio::test]
async fn a_busy_session_cannot_be_reverted_and_continues() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run_to_end(&stack, &session, &format!("{}\n@text over", write("a.txt", "1\n"))).await;
    let first = prompts(&stack, &session).await.remove(0);
    let mut watch = Watch::start(&stack.api, &session).await;
    let child = format!("{}\n@text done", bash("until [ -e go ]; do sleep 0.1; done"));
    stack.api.prompt(&session, &format!("{}\n@text over", task(&child))).await.unwrap();
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    let refused = revert(&stack, &session, &first).await;
    assert_refused(refused, Code::FailedPrecondition, "session_busy");
    assert_refused(unrevert(&stack, &session).await, Code::FailedPrecondition, "session_busy");
    let below = stack.api.children(&session).await.remove(0).id;
    let theirs = prompts(&stack, &below).await.remove(0);
    assert_refused(revert(&stack, &below, &theirs).await, Code::FailedPrecondition, "session_busy");
    stack.api.abort(&session).await.unwrap();
    watch.until(|event| event.kind == "session.idle" && event.properties["outcome"] == "aborted").await;
    testkit::eventually("the subtask ends too", async || revert(&stack, &session, &first).await.is_ok())
        .await;
    assert_refused(
        revert(&stack, &session, &serde_json::json!({"id": "msg_1"})).await,
        Code::NotFound,
        "message_not_found",
    );
    assert_refused(revert_part(&stack, &session, &first, "prt_1").await, Code::NotFound, "part_not_found");
}

/// Has a person run a script in a terminal.
async fn run_in_terminal(stack: &Stack, session: &str, script: &str) {
    let request = v1::CreatePtyRequest {
        session_id: session.to_owned(),
        command: "/bin/bash".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..Default::default()
    };
    let pty = stack.api.ptys().create_pty(request).await.unwrap().into_inner().pty.unwrap();
    let has_ended = async || {
        let request = v1::GetPtyRequest { pty_id: pty.id.clone() };
        let found = stack.api.ptys().get_pty(request).await.unwrap().into_inner().pty.unwrap();
        found.exit_code == Some(0)
    };
    testkit::eventually("the terminal ends", has_ended).await;
}

/// Makes a file that git cannot remove.
const FIX: &str = "mkdir fixed; echo x > fixed/file; chmod 555 fixed";

fn assert_names(refused: Result<v1::Session, Status>, file: &str) {
    let message = assert_refused(refused, Code::FailedPrecondition, "file_not_permitted");
    assert!(message.contains(file), "{message}");
}

#[tokio::test]
async fn a_file_that_cannot_be_restored_is_named_and_restored_when_it_can_be() {
    let (stack, session, [_, second]) = changed().await;
    let prompts = prompts(&stack, &session).await;
    revert(&stack, &session, &prompts[1]).await.unwrap();
    run_in_terminal(&stack, &session, "mkdir d; chmod 555 d").await;
    for _ in 0..2 {
        assert_names(unrevert(&stack, &session).await, "d/new");
        assert!(stack.api.get(&session).await.revert.is_some(), "it can be repeated");
    }
    run_in_terminal(&stack, &session, "chmod 755 d").await;
    let back = unrevert(&stack, &session).await.unwrap();
    assert_eq!((files(&stack, &session).await, back.revert), (second.clone(), None));

    revert(&stack, &session, &prompts[1]).await.unwrap();
    run_in_terminal(&stack, &session, FIX).await;
    assert_names(revert(&stack, &session, &prompts[0]).await, "fixed/file");
    run_in_terminal(&stack, &session, "chmod 755 fixed").await;
    revert(&stack, &session, &prompts[0]).await.unwrap();
    assert_eq!(files(&stack, &session).await, "");
    unrevert(&stack, &session).await.unwrap();
    assert_eq!(files(&stack, &session).await, second);
}

#[tokio::test]
async fn a_prompt_ends_a_revert_whose_files_cannot_be_restored() {
    let (stack, session, _) = changed().await;
    let prompts = prompts(&stack, &session).await;
    revert(&stack, &session, &prompts[1]).await.unwrap();
    run_in_terminal(&stack, &session, FIX).await;
    assert_names(unrevert(&stack, &session).await, "fixed/file");
    let refused = stack.api.prompt(&session, "@text too early").await;
    let message = assert_refused(refused, Code::FailedPrecondition, "file_not_permitted");
    assert!(message.contains("fixed/file"), "{message}");
    assert_eq!(stack.api.get(&session).await.revert, None);
    assert!(command_output(&stack, &session, "cat a.txt").await.starts_with("three\n"));
    assert_eq!(stack.api.conversation(&session).await.len(), 12, "no message is removed");
}

/// Simulates a gateway that crashed during a revert: the intent is stored, some files are written, the hold has expired.
async fn begin(stack: &Stack, session: &str, message: &Value) -> Hold {
    let store = Store::connect(&stack.database.app_url, &stack.database.system_url, 2).unwrap();
    let (tenant, id): (TenantId, SessionId) =
        (stack.api.tenant_id.parse().unwrap(), session.parse().unwrap());
    let talk = stack.api.conversation(session).await;
    let mut parts = talk.iter().flat_map(|(_, parts)| parts);
    let last = parts.rfind(|part| part["type"] == "step-finish").unwrap();
    let now = last["snapshot"].as_str().unwrap().to_owned();
    let hold = store.hold_session(tenant, &id).await.unwrap();
    let message_id = message["id"].as_str().unwrap().parse().unwrap();
    let revert = Revert { message_id, part_id: None, snapshot: Some(now), diff: None };
    store.intend_revert(&hold, &revert).await.unwrap();
    hold
}

async fn end_hold(stack: &Stack) {
    let mut owner = stack.database.owner().await;
    let sql =
        "update session_run set held_until = held_until - interval '1 hour' where held_until is not null";
    sqlx::raw_sql(sql).execute(&mut *owner).await.unwrap();
}

#[tokio::test]
async fn the_next_gateway_finishes_the_revert_of_a_dead_one() {
    let (stack, session, [first, second]) = changed().await;
    let prompts = prompts(&stack, &session).await;
    begin(&stack, &session, &prompts[1]).await;
    let refused = stack.api.prompt(&session, "@text too early").await;
    assert_refused(refused, Code::FailedPrecondition, "session_busy");
    assert_refused(revert(&stack, &session, &prompts[1]).await, Code::FailedPrecondition, "session_busy");
    end_hold(&stack).await;
    revert(&stack, &session, &prompts[1]).await.unwrap();
    assert_eq!(files(&stack, &session).await, first, "the same revert completes it");
    unrevert(&stack, &session).await.unwrap();

    begin(&stack, &session, &prompts[1]).await;
    end_hold(&stack).await;
    unrevert(&stack, &session).await.unwrap();
    assert_eq!(files(&stack, &session).await, second, "undoing it completes it");

    begin(&stack, &session, &prompts[1]).await;
    end_hold(&stack).await;
    assert!(
        command_output(&stack, &session, "cat a.txt").await.starts_with("one\n"),
        "the next prompt completes it"
    );
    assert_eq!(stack.api.conversation(&session).await.len(), 6);
}

/// Starts a revert whose gateway cannot read the conversation before the lock is dropped. Returns when its hold expires.
async fn stuck(stack: &Stack, session: &str) -> (JoinHandle<Result<v1::Session, Status>>, PgConnection) {
    let message = prompts(stack, session).await.remove(1);
    let mut let_go = testkit::database::connect(&stack.database.migrator_url).await;
    sqlx::raw_sql("begin; lock table part in access exclusive mode").execute(&mut let_go).await.unwrap();
    let request = v1::RevertSessionRequest {
        session_id: session.to_owned(),
        message_id: message["id"].as_str().unwrap().to_owned(),
        part_id: String::new(),
    };
    let mut sessions = stack.api.sessions();
    let reverted =
        tokio::spawn(
            async move { Ok(sessions.revert_session(request).await?.into_inner().session.unwrap()) },
        );
    testkit::eventually("the session is held", async || held_until_ms(stack).await > 0).await;
    (reverted, let_go)
}

/// Returns when the hold expires; 0 without a hold.
async fn held_until_ms(stack: &Stack) -> i64 {
    let mut owner = stack.database.owner().await;
    let sql = "select coalesce(max(extract(epoch from held_until) * 1000)::bigint, 0) from session_run";
    sqlx::query_scalar(sql).fetch_one(&mut *owner).await.unwrap()
}

#[tokio::test]
async fn a_gateway_renews_its_hold_during_a_revert() {
    let (stack, session, [first, _]) = changed().await;
    let (reverted, let_go) = stuck(&stack, &session).await;
    let until = held_until_ms(&stack).await;
    testkit::eventually("it is renewed", async || held_until_ms(&stack).await > until + 1_000).await;
    drop(let_go);
    reverted.await.unwrap().unwrap();
    assert_eq!((files(&stack, &session).await, held_until_ms(&stack).await), (first, 0));
}

#[tokio::test]
async fn a_gateway_that_lost_its_hold_writes_no_file() {
    let (stack, session, [_, second]) = changed().await;
    let (reverted, let_go) = stuck(&stack, &session).await;
    end_hold(&stack).await;
    assert_refused(reverted.await.unwrap(), Code::FailedPrecondition, "session_busy");
    drop(let_go);
    assert_eq!(files(&stack, &session).await, second);
    assert!(
        command_output(&stack, &session, "cat a.txt").await.starts_with("three\n"),
        "prompts are accepted again"
    );
}

#[tokio::test]
async fn a_revert_without_a_sandbox_changes_nothing() {
    let (mut stack, session, [first, second]) = changed().await;
    let prompts = prompts(&stack, &session).await;
    stack.stop_sandbox().await;
    assert_refused(revert(&stack, &session, &prompts[1]).await, Code::Unavailable, "sandbox_unavailable");
    assert_eq!(stack.api.get(&session).await.revert, None);
    stack.start_sandbox().await;
    revert(&stack, &session, &prompts[1]).await.unwrap();
    assert_eq!(files(&stack, &session).await, first);
    stack.stop_sandbox().await;
    assert_refused(unrevert(&stack, &session).await, Code::Unavailable, "sandbox_unavailable");
    assert_refused(stack.api.prompt(&session, "@text x").await, Code::Unavailable, "sandbox_unavailable");
    stack.start_sandbox().await;
    unrevert(&stack, &session).await.unwrap();
    assert_eq!(files(&stack, &session).await, second);
}
