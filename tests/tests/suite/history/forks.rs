//! Forks: the history and the files of a session become the start of another session.

use super::{run_to_end, write};
use e2e::{Stack, api::assert_refused, turn::bash};
use rpc::v1::{self, ForkFiles};
use serde_json::Value;
use tonic::{Code, Status};

async fn fork(
    stack: &Stack,
    session: &str,
    message: Option<&Value>,
    files: ForkFiles,
) -> Result<v1::Session, Status> {
    keyed_fork(stack, session, (message, files), "").await
}

async fn keyed_fork(
    stack: &Stack,
    session: &str,
    (message, files): (Option<&Value>, ForkFiles),
    key: &str,
) -> Result<v1::Session, Status> {
    let request = v1::ForkSessionRequest {
        session_id: session.to_owned(),
        message_id: message.map(|info| info["id"].as_str().unwrap().to_owned()).unwrap_or_default(),
        files: files.into(),
        idempotency_key: key.to_owned(),
    };
    Ok(stack.api.sessions().fork_session(request).await?.into_inner().session.unwrap())
}

/// Returns the output of a command in a session.
async fn command_output(stack: &Stack, session: &str, command: &str) -> String {
    run_to_end(stack, session, &format!("{}\n@text over", bash(command))).await;
    stack.api.tool_calls(session).await.pop().unwrap().result
}

/// Returns the texts of a conversation with their roles.
async fn texts_by_role(stack: &Stack, session: &str) -> Vec<(String, String)> {
    let talk = stack.api.conversation(session).await;
    let texts = talk.iter().flat_map(|(info, parts)| {
        let texts = parts.iter().filter(|part| part["type"] == "text");
        texts.map(|part| {
            (info["role"].as_str().unwrap().to_owned(), part["text"].as_str().unwrap().to_owned())
        })
    });
    texts.collect()
}

const LOOK: &str = "git status --short; cat a.txt; ls; git log --format=%s | cat";

#[tokio::test]
async fn a_fork_has_the_history_and_files_from_before_a_message() {
    let stack = Stack::start().await;
    let files = [("a.txt", "one\r\n"), ("gone.txt", "x\n"), (".gitattributes", "*.txt text eol=lf\n")];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    run_to_end(
        &stack,
        &session,
        &format!("{}\n{}\n@text first", write("b.txt", "b\r\n"), bash("rm gone.txt")),
    )
    .await;
    run_to_end(&stack, &session, &format!("{}\n@text second", write("a.txt", "two\n"))).await;
    run_to_end(&stack, &session, "@text third").await;
    let talk = stack.api.conversation(&session).await;
    let second = talk.iter().map(|(info, _)| info).filter(|info| info["role"] == "user").nth(1).unwrap();

    let forked = fork(&stack, &session, Some(second), ForkFiles::AtMessage).await.unwrap();
    assert_eq!(
        (forked.title.as_str(), forked.summary, forked.state()),
        ("test (fork #1)", None, v1::SessionState::Idle)
    );
    let copy = stack.api.conversation(&forked.id).await;
    assert_eq!(copy.len(), 4);
    assert_eq!(texts_by_role(&stack, &forked.id).await, texts_by_role(&stack, &session).await[..2]);
    for ((old, _), (new, parts)) in talk.iter().zip(&copy) {
        assert!(old["id"] != new["id"] && new["sessionID"] == forked.id.as_str());
        let strange = parts.iter().find(|part| part["type"] == "patch" || !part["snapshot"].is_null());
        assert_eq!(strange, None, "snapshots of another workspace");
    }
    assert_eq!(copy[1].0["parentID"], copy[0].0["id"]);
    let want = " D gone.txt\n?? b.txt\none\na.txt\nb.txt\nfirst\n";
    assert_eq!(command_output(&stack, &forked.id, LOOK).await.replace('\r', ""), want);
    assert_eq!(command_output(&stack, &forked.id, "cat b.txt").await, "b\r\n", "bytes are kept");
    let request = stack.model.journal.requests().pop().unwrap().body.to_string();
    assert!(
        request.contains("first") && !request.contains("@text second"),
        "the model receives the same history: {request}"
    );
    let diff = v1::GetSessionDiffRequest { session_id: forked.id.clone(), ..Default::default() };
    let diff = stack.api.sessions().get_session_diff(diff).await.unwrap().into_inner();
    let paths: Vec<&str> = diff.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["b.txt", "gone.txt"], "counted from the first commit of the origin");
    // The two sessions are independent.
    run_to_end(&stack, &forked.id, &format!("{}\n@text over", write("mine.txt", "x"))).await;
    assert!(!command_output(&stack, &session, "ls; cat a.txt").await.contains("mine.txt"));
    assert_eq!(stack.api.conversation(&session).await[..talk.len()], talk);
    let again = fork(&stack, &forked.id, None, ForkFiles::AtMessage).await.unwrap();
    assert_eq!(again.title, "test (fork #2)");
    assert!(command_output(&stack, &again.id, "ls").await.contains("mine.txt"));
}

#[tokio::test]
async fn a_fork_can_keep_the_current_files_or_have_none() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run_to_end(&stack, &session, "@text only words").await;
    let without = fork(&stack, &session, None, ForkFiles::AtMessage).await.unwrap();
    assert_eq!(command_output(&stack, &without.id, "ls -A | grep -v git; echo none").await, "none\n");
    run_to_end(&stack, &session, &format!("{}\n@text over", write("a.txt", "one\n"))).await;
    let talk = stack.api.conversation(&session).await;
    let [then, now] = [ForkFiles::AtMessage, ForkFiles::Now];
    let then = fork(&stack, &session, Some(&talk[2].0), then).await.unwrap();
    assert_eq!(command_output(&stack, &then.id, "ls").await, "(no output)");
    let now = fork(&stack, &session, Some(&talk[2].0), now).await.unwrap();
    assert_eq!(stack.api.conversation(&now.id).await.len(), 2);
    assert_eq!(command_output(&stack, &now.id, "ls").await, "a.txt\n");
    let export = v1::ExportSessionRequest { session_id: now.id.clone(), squash: false };
    let mut parts = stack.api.sessions().export_session(export).await.unwrap().into_inner();
    let mut bundle = vec![];
    // The name of the commit may come alone.
    while let Some(part) = parts.message().await.unwrap() {
        bundle.extend(part.data);
    }
    assert!(bundle.starts_with(b"# v"), "the export contains its empty first commit");
    let refused = fork(&stack, &session, Some(&serde_json::json!({"id": "msg_1"})), ForkFiles::Now).await;
    assert_refused(refused, Code::NotFound, "message_not_found");
}

#[tokio::test]
async fn a_fork_is_on_the_branch_of_its_files() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let prompt = format!("{}\n{}\n@text over", bash("git checkout -q -b feature"), write("b.txt", "b\n"));
    run_to_end(&stack, &session, &prompt).await;
    let forked = fork(&stack, &session, None, ForkFiles::Now).await.unwrap();
    let status = command_output(&stack, &forked.id, "git status --short --branch").await;
    assert_eq!(status, "## feature\n?? b.txt\n");
}

#[tokio::test]
async fn a_fork_omits_reverted_messages() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    run_to_end(&stack, &session, &format!("{}\n@text first", write("b.txt", "b\n"))).await;
    run_to_end(&stack, &session, &format!("{}\n@text second", write("c.txt", "c\n"))).await;
    let talk = stack.api.conversation(&session).await;
    let message_id = talk[3].0["id"].as_str().unwrap().to_owned();
    let request = v1::RevertSessionRequest { session_id: session.clone(), message_id, ..Default::default() };
    stack.api.sessions().revert_session(request).await.unwrap();
    let forked = fork(&stack, &session, None, ForkFiles::AtMessage).await.unwrap();
    assert_eq!(stack.api.conversation(&forked.id).await.len(), 3);
    assert_eq!(command_output(&stack, &forked.id, "ls").await, "a.txt\nb.txt\n");
}

#[tokio::test]
async fn a_repeated_key_gives_the_same_fork() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    run_to_end(&stack, &session, &format!("{}\n@text first", write("b.txt", "b\n"))).await;
    let whole = (None, ForkFiles::AtMessage);
    // The calls are concurrent: both may find that the fork does not exist yet.
    let (one, two) =
        tokio::join!(keyed_fork(&stack, &session, whole, "k"), keyed_fork(&stack, &session, whole, "k"),);
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id, two.id);
    run_to_end(&stack, &session, "@text later").await;
    assert_eq!(
        keyed_fork(&stack, &session, whole, "k").await.unwrap().id,
        one.id,
        "also when there is more to fork"
    );
    assert_eq!(stack.api.conversation(&one.id).await.len(), 3);
    let prompt = stack.api.conversation(&session).await.remove(0).0;
    for other in [(Some(&prompt), ForkFiles::AtMessage), (None, ForkFiles::Now)] {
        let refused = keyed_fork(&stack, &session, other, "k").await;
        assert_refused(refused, Code::AlreadyExists, "idempotency_conflict");
    }
    let refused = keyed_fork(&stack, &one.id, whole, "k").await;
    assert_refused(refused, Code::AlreadyExists, "idempotency_conflict");
    let project_id = stack.api.project_id.clone();
    let new = v1::CreateSessionRequest { project_id, idempotency_key: "k".to_owned(), ..Default::default() };
    let refused = stack.api.sessions().create_session(new).await;
    assert_refused(refused, Code::AlreadyExists, "idempotency_conflict");
    assert_ne!(keyed_fork(&stack, &session, whole, "other").await.unwrap().id, one.id);
    let refused = keyed_fork(&stack, &session, whole, &"k".repeat(129)).await;
    assert_refused(refused, Code::InvalidArgument, "idempotency_key_too_long");
}
