//! Invalid calls: each is refused with a clear code, and valid calls work afterwards.

mod bodies;
mod keys;
mod roles;
mod uploads;
mod wire;

use domain::limits;
use e2e::{
    Stack,
    api::{Api, assert_refused},
    turn::{Watch, assert_works, run},
};
use rpc::v1;
use tonic::{Code, Status};

/// Sends a valid prompt with `change` applied.
async fn prompt(
    api: &Api,
    session: &str,
    change: impl FnOnce(&mut v1::AcceptPromptRequest),
) -> Result<(), Status> {
    let mut request = v1::AcceptPromptRequest {
        session_id: session.to_owned(),
        text: "@text fine".to_owned(),
        ..Default::default()
    };
    change(&mut request);
    api.prompts().accept_prompt(request).await.map(|_| ())
}

/// Creates a session from a valid request with `change` applied.
async fn session(
    api: &Api,
    change: impl FnOnce(&mut v1::CreateSessionRequest),
) -> Result<v1::Session, Status> {
    let mut request = v1::CreateSessionRequest { project_id: api.project_id.clone(), ..Default::default() };
    change(&mut request);
    Ok(api.sessions().create_session(request).await?.into_inner().session.unwrap())
}

fn model(provider_id: &str, model_id: &str) -> Option<v1::ModelRef> {
    Some(v1::ModelRef { provider_id: provider_id.to_owned(), model_id: model_id.to_owned() })
}

#[tokio::test]
async fn invalid_prompts_are_refused_and_store_nothing() {
    let stack = Stack::without_sandbox().await;
    let (api, id) = (&stack.api, stack.session().await);
    for text in ["", " ", "\n\t \u{a0}\u{2003}"] {
        let refused = prompt(api, &id, |prompt| prompt.text = text.to_owned()).await;
        assert_refused(refused, Code::InvalidArgument, "prompt_empty");
    }
    for bytes in [limits::PROMPT_BYTES_MAX + 1, 10 * limits::PROMPT_BYTES_MAX] {
        let refused = prompt(api, &id, |prompt| prompt.text = "x".repeat(bytes)).await;
        let message = assert_refused(refused, Code::InvalidArgument, "prompt_too_long");
        assert!(message.contains(&bytes.to_string()), "{message}");
    }
    let refused = prompt(api, &id, |prompt| prompt.system = "x".repeat(limits::PROMPT_BYTES_MAX + 1)).await;
    assert_refused(refused, Code::InvalidArgument, "prompt_too_long");
    // The connection survives a message beyond the limit of the transport.
    let refused = prompt(api, &id, |prompt| prompt.text = "x".repeat(rpc::MESSAGE_BYTES_MAX + 1)).await;
    assert_refused(refused, Code::OutOfRange, "body_too_large");
    let refused = prompt(api, &id, |prompt| prompt.idempotency_key = "k".repeat(129)).await;
    assert_refused(refused, Code::InvalidArgument, "idempotency_key_too_long");
    let refused = prompt(api, &id, |prompt| prompt.idempotency_key = "k\0".to_owned()).await;
    assert_refused(refused, Code::InvalidArgument, "idempotency_key_invalid");
    let refused = prompt(api, &id, |prompt| prompt.model = model("chat", "gpt-9")).await;
    let message = assert_refused(refused, Code::InvalidArgument, "model_unknown");
    assert!(message.contains("chat/gpt-9") && message.contains("chat/demo, claude/demo"), "{message}");
    let refused = prompt(api, &id, |prompt| prompt.model = model("", "demo\0")).await;
    assert_refused(refused, Code::InvalidArgument, "model_unknown");
    let refused = prompt(api, &id, |prompt| prompt.agent = "pirate".to_owned()).await;
    let message = assert_refused(refused, Code::InvalidArgument, "agent_unknown");
    assert!(message.contains("\"pirate\"; available: build"), "{message}");
    assert!(api.conversation(&id).await.is_empty(), "a refused prompt is not stored");
    assert_eq!(api.get(&id).await.event_seq, 1);
    assert_works(api, &id).await;
}

#[tokio::test]
async fn the_longest_prompt_and_zero_bytes_are_accepted() {
    let stack = Stack::without_sandbox().await;
    let id = stack.session().await;
    // The prompt must not count as a full context.
    let head = "@usage input=1\n@text long\n";
    let longest = format!("{head}{}", "x".repeat(limits::PROMPT_BYTES_MAX - head.len()));
    assert_eq!(longest.len(), limits::PROMPT_BYTES_MAX);
    assert_eq!(run(&stack.api, &id, &longest).await.0, "done");
    assert_eq!(run(&stack.api, &id, "@text a\0b\u{202e}\u{fffe}é").await.0, "done");
    let talk = stack.api.conversation(&id).await;
    assert_eq!(talk[0].1[0]["text"].as_str().unwrap().len(), longest.len());
    assert_eq!(talk[2].1[0]["text"], "@text a\u{fffd}b\u{202e}\u{fffe}é", "zero bytes are removed");
    assert_eq!(talk[3].1[1]["text"], "a\u{fffd}b\u{202e}\u{fffe}é");
    assert_works(&stack.api, &id).await;
}

#[tokio::test]
async fn names_and_settings_of_sessions_are_checked() {
    let stack = Stack::without_sandbox().await;
    let (api, long) = (&stack.api, "é".repeat(limits::NAME_BYTES_MAX / 2 + 1));
    assert_refused(
        session(api, |new| new.title = long.clone()).await,
        Code::InvalidArgument,
        "name_too_long",
    );
    assert_refused(session(api, |new| new.title = " ".to_owned()).await, Code::InvalidArgument, "name_empty");
    assert_refused(
        session(api, |new| new.model = model("x", "y")).await,
        Code::InvalidArgument,
        "model_unknown",
    );
    assert_refused(
        session(api, |new| new.agent = "x".to_owned()).await,
        Code::InvalidArgument,
        "agent_unknown",
    );
    for unknown in ["", "prj_", "prj_00000000000000000000000000", "x\0", "ses_00000000000000000000000000"] {
        let refused = session(api, |new| new.project_id = unknown.to_owned()).await;
        assert_refused(refused, Code::NotFound, "project_not_found");
    }
    let refused = session(api, |new| new.idempotency_key = "k".repeat(129)).await;
    assert_refused(refused, Code::InvalidArgument, "idempotency_key_too_long");
    let refused = session(api, |new| new.idempotency_key = "\0".to_owned()).await;
    assert_refused(refused, Code::InvalidArgument, "idempotency_key_invalid");
    let new_session = session(api, |new| new.title = "a\0b".to_owned()).await.unwrap();
    assert_eq!(new_session.title, "a\u{fffd}b");
    let update = async |paths: &[&str], title: &str| {
        let request = v1::UpdateSessionRequest {
            session_id: new_session.id.clone(),
            update_mask: Some(prost_types::FieldMask {
                paths: paths.iter().map(ToString::to_string).collect(),
            }),
            title: title.to_owned(),
            archived: false,
            ..Default::default()
        };
        api.sessions().update_session(request).await
    };
    let message =
        assert_refused(update(&["title", "cost"], "x").await, Code::InvalidArgument, "field_unknown");
    assert!(message.contains("cannot change \"cost\"; title, archived, agent and model can"), "{message}");
    assert_refused(update(&[], "x").await, Code::InvalidArgument, "mask_empty");
    assert_refused(update(&["title"], "").await, Code::InvalidArgument, "name_empty");
    assert_refused(update(&["title"], &long).await, Code::InvalidArgument, "name_too_long");
    assert_eq!(api.get(&new_session.id).await.title, "a\u{fffd}b", "a refused change changes nothing");
    for name in ["", "x".repeat(limits::NAME_BYTES_MAX + 1).as_str()] {
        let request = v1::CreateProjectRequest { name: name.to_owned(), ..Default::default() };
        let code = if name.is_empty() { "name_empty" } else { "name_too_long" };
        assert_refused(api.projects().create_project(request).await, Code::InvalidArgument, code);
    }
    assert_works(api, &new_session.id).await;
}

#[tokio::test]
async fn unknown_ids_are_not_found() {
    let stack = Stack::start().await;
    let (api, session) = (&stack.api, stack.session().await);
    assert!(!api.abort(&session).await.unwrap(), "no turn is active");
    let far = format!("ses_{}", "a".repeat(5_000));
    let message = "msg_00000000000000000000000000";
    for id in ["", "ses_", "ses_00000000000000000000000000", "../ses", "ses_a\0b", "ses_a'--", message, &far]
    {
        let session_id = id.to_owned();
        assert_refused(api.abort(id).await, Code::NotFound, "session_not_found");
        assert_refused(api.prompt(id, "@text x").await, Code::NotFound, "session_not_found");
        let request = v1::GetSessionRequest { session_id: session_id.clone() };
        assert_refused(api.sessions().get_session(request).await, Code::NotFound, "session_not_found");
        let request = v1::SubscribeRequest { session_id: session_id.clone(), ..Default::default() };
        assert_refused(api.events().subscribe(request).await, Code::NotFound, "session_not_found");
        let request = v1::DeleteSessionRequest { session_id };
        assert_refused(api.sessions().delete_session(request).await, Code::NotFound, "session_not_found");
    }
    for id in ["", "msg_", message, "prt_00000000000000000000000000", "\0"] {
        let request = v1::GetMessageRequest { session_id: session.clone(), message_id: id.to_owned() };
        assert_refused(api.messages().get_message(request).await, Code::NotFound, "message_not_found");
    }
    for id in ["", "per_00000000000000000000000000", "\0"] {
        let request =
            v1::ReplyPermissionRequest { permission_id: id.to_owned(), answer: 1, ..Default::default() };
        assert_refused(
            api.permissions().reply_permission(request).await,
            Code::NotFound,
            "permission_not_found",
        );
        let request = v1::ReplyQuestionRequest { question_id: id.to_owned(), ..Default::default() };
        assert_refused(api.questions().reply_question(request).await, Code::NotFound, "question_not_found");
    }
    // No turn ran yet, so there is no workspace.
    let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
    let refused = api.sessions().get_session_diff(request).await;
    assert_refused(refused, Code::FailedPrecondition, "workspace_missing");
    assert_works(api, &session).await;
}

#[tokio::test]
async fn pages_and_cursors_are_checked() {
    let stack = Stack::without_sandbox().await;
    let (api, id) = (&stack.api, stack.session().await);
    let page = |limit: u32, cursor: &str| Some(v1::Page { limit, cursor: cursor.to_owned() });
    let sessions = async |page| {
        let request = v1::ListSessionsRequest { page, ..Default::default() };
        api.sessions().list_sessions(request).await.map(|_| ())
    };
    let children = async |page| {
        let request = v1::ListSessionChildrenRequest { session_id: id.clone(), page };
        api.sessions().list_session_children(request).await.map(|_| ())
    };
    let messages = async |page| {
        let request = v1::ListMessagesRequest { session_id: id.clone(), page };
        api.messages().list_messages(request).await.map(|_| ())
    };
    let projects =
        async |page| api.projects().list_projects(v1::ListProjectsRequest { page }).await.map(|_| ());
    let keys = async |page| {
        let request = v1::ListKeysRequest { tenant_id: String::new(), page };
        api.tenants().list_keys(request).await.map(|_| ())
    };
    for limit in [limits::PAGE_MAX + 1, u32::MAX] {
        let large = page(limit, "");
        assert_refused(sessions(large.clone()).await, Code::InvalidArgument, "page_too_large");
        assert_refused(children(large.clone()).await, Code::InvalidArgument, "page_too_large");
        assert_refused(messages(large.clone()).await, Code::InvalidArgument, "page_too_large");
        assert_refused(projects(large.clone()).await, Code::InvalidArgument, "page_too_large");
        assert_refused(keys(large).await, Code::InvalidArgument, "page_too_large");
    }
    sessions(page(limits::PAGE_MAX, "")).await.unwrap();
    // A forged cursor must not return the first page: a client that follows it would never finish.
    for forged in ["x", "-1.", "1", "9999999999999999999999.ses_1", "\0", "1.ses_\0", "1.x"] {
        assert_refused(sessions(page(1, forged)).await, Code::InvalidArgument, "cursor_invalid");
        assert_refused(children(page(1, forged)).await, Code::InvalidArgument, "cursor_invalid");
    }
    for forged in ["x", "-1", "1.5", "99999999999999999999", "\0"] {
        assert_refused(messages(page(1, forged)).await, Code::InvalidArgument, "cursor_invalid");
    }
    assert_refused(projects(page(1, "a\0")).await, Code::InvalidArgument, "cursor_invalid");
    assert_refused(keys(page(1, "a\0")).await, Code::InvalidArgument, "cursor_invalid");
    assert_works(api, &id).await;
}

#[tokio::test]
async fn forged_event_cursors_are_refused() {
    let stack = Stack::without_sandbox().await;
    let (api, id) = (&stack.api, stack.session().await);
    let subscribe = async |cursor: &str, tail_only: bool| {
        let request = v1::SubscribeRequest {
            session_id: id.clone(),
            cursor: cursor.to_owned(),
            tail_only,
            ..Default::default()
        };
        api.events().subscribe(request).await
    };
    for forged in
        ["x", "1", "v1.", "v1.x", "v1.-1", "v1.1.1", "v2.1", "v1.999999", "v1.18446744073709551616", "\0"]
    {
        assert_refused(subscribe(forged, false).await, Code::InvalidArgument, "cursor_invalid");
    }
    assert_refused(subscribe("v1.1", true).await, Code::InvalidArgument, "cursor_invalid");
    assert_works(api, &id).await;
    let (_, transcript) = run(api, &id, "@text again").await;
    // A cursor of this session resumes at exactly its position.
    let mut watch = Watch::from(api, &id, "v1.3").await;
    watch.until_idle().await;
    assert_eq!(watch.transcript.events[0].seq, 4);
    assert_eq!(transcript.events[3].kind, watch.transcript.events[0].kind);
}
