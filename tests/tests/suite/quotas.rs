//! Quotas of tenants: what is refused, what goes on, and what people see.

use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    turn::{assert_works, run, task},
};
use rpc::v1;
use tonic::Code;

async fn set(stack: &Stack, change: v1::UpdateTenantRequest) {
    let tenant_id = stack.api.tenant_id.clone();
    let request = v1::UpdateTenantRequest { tenant_id, ..change };
    stack.operator().tenants().update_tenant(request).await.unwrap();
}

async fn usage(api: &Api, tenant_id: &str) -> Vec<v1::Usage> {
    let request = v1::ListUsageRequest { tenant_id: tenant_id.to_owned(), page: None };
    api.tenants().list_usage(request).await.unwrap().into_inner().usages
}

fn refused<T>(result: Result<T, tonic::Status>, code: &str) -> String {
    assert_refused(result, Code::ResourceExhausted, code)
}

#[tokio::test]
async fn a_full_quota_refuses_what_is_new_and_nothing_else() {
    let options = Options { worker: &["--measure-ms", "200"], ..Options::default() };
    let stack = Stack::with(options).await;
    let api = &stack.api;
    let other = stack.other_tenant().await;
    let limits =
        v1::UpdateTenantRequest { sessions_max: Some(2), projects_max: Some(1), ..Default::default() };
    set(&stack, limits).await;

    let keyed = |key: &str| v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        idempotency_key: key.to_owned(),
        ..Default::default()
    };
    let create = async |key: &str| api.sessions().create_session(keyed(key)).await;
    let first = create("first").await.unwrap().into_inner().session.unwrap().id;
    create("second").await.unwrap();
    let message = refused(create("third").await, "sessions_too_many");
    assert!(message.contains("has 2 sessions, its quota is 2"), "{message}");
    let again = create("first").await.unwrap().into_inner().session.unwrap().id;
    assert_eq!(again, first, "a repeated call creates nothing");
    let fork = v1::ForkSessionRequest { session_id: first.clone(), ..Default::default() };
    refused(api.sessions().fork_session(fork).await, "sessions_too_many");
    let project = |name: &str| v1::CreateProjectRequest { name: name.to_owned(), ..Default::default() };
    refused(api.projects().create_project(project("new")).await, "projects_too_many");
    api.projects().create_project(project("project")).await.unwrap();
    // What exists goes on without new subtasks, and other tenants do not notice.
    assert_works(api, &first).await;
    let prompt = format!("{}\n@text alone", task("@text never"));
    assert_eq!(run(api, &first, &prompt).await.0, "done");
    let call = api.tool_calls(&first).await.into_iter().find(|call| call.tool == "task").unwrap();
    let refusal = "sessions_too_many: the tenant has 2 sessions, its quota is 2. No subtask was started";
    assert!(call.status == "error" && call.result.contains(refusal), "{} {}", call.status, call.result);
    assert!(api.children(&first).await.is_empty());
    assert_works(&other, &other.session(None).await).await;

    let own = usage(api, "").await;
    assert_eq!((own.len(), own[0].sessions, own[0].sessions_max, own[0].projects), (1, 2, 2, 1));
    let all = usage(&stack.operator(), "").await;
    assert!(all.len() >= 2 && all.iter().any(|one| one.tenant_id == own[0].tenant_id), "{all:?}");
    let one = usage(&stack.operator(), &api.tenant_id).await;
    assert_eq!((one.len(), one[0].tenant_id.as_str()), (1, api.tenant_id.as_str()));

    // A deleted session makes room.
    let delete = v1::DeleteSessionRequest { session_id: again };
    api.sessions().delete_session(delete).await.unwrap();
    testkit::eventually("the figures are read again", async || create("third").await.is_ok()).await;
}

#[tokio::test]
async fn a_full_store_refuses_prompts_and_bundles() {
    let options = Options { worker: &["--measure-ms", "200"], ..Options::default() };
    let stack = Stack::with(options).await;
    let api = &stack.api;
    let session = api.session(None).await;
    assert_eq!(run(api, &session, "@text first").await.0, "done");
    let keyed = async |text: &str| {
        let change = |request: &mut v1::AcceptPromptRequest| {
            (request.text, request.idempotency_key) = (text.to_owned(), "key".to_owned());
        };
        api.prompt_with(&session, change).await
    };
    let first = keyed("@text keyed").await.unwrap();
    testkit::eventually("a worker measures the log", async || usage(api, "").await[0].stored_bytes > 100)
        .await;
    set(&stack, v1::UpdateTenantRequest { stored_bytes_max: Some(100), ..Default::default() }).await;
    let message = refused(api.prompt(&session, "@text second").await, "storage_full");
    assert!(message.contains("its quota is 100; delete sessions"), "{message}");
    let again = keyed("@text keyed").await.unwrap();
    assert_eq!(again.message_id, first.message_id, "a repeated prompt stores nothing");
    assert_refused(keyed("@text other").await, Code::AlreadyExists, "idempotency_conflict");
    refused(api.try_session(None).await, "storage_full");
    let bundle = testkit::git::repository(&[("a.txt", "a")]).bundle();
    let header = v1::BundleHeader { size_bytes: bundle.bytes.len() as u64, sha256: bundle.sha256.clone() };
    let part = Some(v1::upload_bundle_request::Part::Header(header));
    let upload = tokio_stream::once(v1::UploadBundleRequest { part });
    refused(api.projects().upload_bundle(upload).await, "storage_full");
    set(&stack, v1::UpdateTenantRequest { stored_bytes_max: Some(1 << 30), ..Default::default() }).await;
    assert_works(api, &session).await;
}
