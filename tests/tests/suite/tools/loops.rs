//! A model that repeats the same call with the same result: a person decides whether it may continue.

use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    turn::{Watch, assert_works, bash, run},
};
use rpc::v1::{self, PermissionAnswer, PermissionVerdict};
use serde_json::json;
use tonic::Code;

fn again(times: usize) -> String {
    format!("{}\n", bash("echo again")).repeat(times) + "@text {{last_tool_result}}"
}

/// Waits until the session is parked for the permission, and returns the id of the request.
async fn wait_for_permission(watch: &mut Watch) -> String {
    let permission = watch.until(|event| event.kind == "permission.asked").await.properties;
    assert_eq!(
        (&permission["permission"], &permission["patterns"], &permission["always"]),
        (&json!("doom_loop"), &json!(["bash"]), &json!(["bash"]))
    );
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    permission["id"].as_str().unwrap().to_owned()
}

async fn open(api: &Api) -> usize {
    let open = api.permissions().list_permissions(v1::ListPermissionsRequest::default()).await.unwrap();
    open.into_inner().permissions.len()
}

async fn session_that_asks(api: &Api, on_ask: v1::OnAsk) -> String {
    let project_id = api.project_id.clone();
    let request = v1::CreateSessionRequest { project_id, on_ask: on_ask.into(), ..Default::default() };
    api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
}

#[tokio::test]
async fn once_allows_three_more_calls_on_any_worker() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &again(9)).await.unwrap();
    let first = wait_for_permission(&mut watch).await;
    let calls = async |stack: &Stack| stack.api.tool_calls(&session).await.len();
    assert_eq!(calls(&stack).await, domain::limits::DOOM_LOOP_CALLS);
    // The request and its answer outlive the worker that asked.
    stack.crash_worker(0);
    stack.api.reply(&first, PermissionAnswer::Once, "").await.unwrap();
    stack.add_worker().await;
    let second = wait_for_permission(&mut watch).await;
    assert_ne!(first, second);
    assert_eq!(calls(&stack).await, 2 * domain::limits::DOOM_LOOP_CALLS);
    stack.api.reply(&second, PermissionAnswer::Reject, "").await.unwrap();
    assert_eq!(watch.until_idle().await, "needs_human");
    watch.transcript.assert_gap_free();
    assert_eq!(calls(&stack).await, 2 * domain::limits::DOOM_LOOP_CALLS, "there was no further call");
    let last = stack.api.tool_calls(&session).await.pop().unwrap();
    assert!(last.status == "error" && last.result.contains("did not allow that to continue"), "{last:?}");
    assert_works(&stack.api, &session).await;
}

#[tokio::test]
async fn always_ends_the_loop_check_and_a_refusal_reaches_the_model() {
    let stack = Stack::start().await;
    let (api, session) = (&stack.api, stack.session().await);
    let mut watch = Watch::start(api, &session).await;
    api.prompt(&session, &again(3)).await.unwrap();
    let id = wait_for_permission(&mut watch).await;
    api.reply(&id, PermissionAnswer::Reject, "count to ten").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let talk = api.conversation(&session).await;
    let text = talk.last().unwrap().1.iter().find(|part| part["type"] == "text").unwrap()["text"].clone();
    assert!(text.as_str().unwrap().contains("and says: count to ten"), "{text}");

    api.prompt(&session, &again(7)).await.unwrap();
    let id = wait_for_permission(&mut watch).await;
    api.reply(&id, PermissionAnswer::Always, "").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!((run(api, &session, &again(4)).await.0.as_str(), open(api).await), ("done", 0));
}

#[tokio::test]
async fn rules_and_sessions_without_people_need_no_answer() {
    let stack = Stack::start().await;
    let api = &stack.api;
    for (verdict, calls_with_errors) in [(PermissionVerdict::Allow, 0), (PermissionVerdict::Deny, 2)] {
        let session = api.session_with_rules(&[("doom_loop", verdict)]).await;
        assert_eq!(run(api, &session, &again(6)).await.0, "done", "{verdict:?}");
        let calls = api.tool_calls(&session).await;
        let errors = calls.iter().filter(|call| call.result.contains("A rule of this session forbids that"));
        assert_eq!((calls.len(), errors.count()), (6, calls_with_errors), "{verdict:?}");
    }
    let denies = session_that_asks(api, v1::OnAsk::Deny).await;
    assert_eq!(run(api, &denies, &again(3)).await.0, "done");
    let last = api.tool_calls(&denies).await.pop().unwrap();
    assert!(last.result.contains("This session cannot ask a person"), "{last:?}");
    let fails = session_that_asks(api, v1::OnAsk::Fail).await;
    let (outcome, transcript) = run(api, &fails, &again(3)).await;
    assert_eq!(outcome, "needs_human");
    assert!(
        transcript.error().unwrap().to_string().contains("this session asks no person"),
        "{:?}",
        transcript.error()
    );
    assert_eq!(open(api).await, 0);
    assert_works(api, &fails).await;
}

#[tokio::test]
async fn the_end_of_the_turn_closes_the_request() {
    let stack = Stack::with(Options { request_wait_ms: 4_000, ..Options::default() }).await;
    let (api, session) = (&stack.api, stack.session().await);
    let mut watch = Watch::start(api, &session).await;
    api.prompt(&session, &again(3)).await.unwrap();
    let id = wait_for_permission(&mut watch).await;
    assert!(api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    assert_eq!(open(api).await, 0);
    let late = api.reply(&id, PermissionAnswer::Once, "").await;
    assert_refused(late, Code::FailedPrecondition, "already_resolved");

    api.prompt(&session, &again(3)).await.unwrap();
    let id = wait_for_permission(&mut watch).await;
    api.prompt(&session, "@text something else").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(open(api).await, 0);
    let late = api.reply(&id, PermissionAnswer::Once, "").await;
    assert_refused(late, Code::FailedPrecondition, "already_resolved");

    api.prompt(&session, &again(3)).await.unwrap();
    wait_for_permission(&mut watch).await;
    assert_eq!(watch.until_idle().await, "needs_human", "its deadline counts as a refusal");
    assert_works(api, &session).await;
}
