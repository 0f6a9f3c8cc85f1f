//! Tenants are isolated: ids of another tenant are not found in any call.

mod described;

use e2e::{
    Stack,
    api::{Api, code},
    turn::{Watch, assert_works, bash, run},
};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use rpc::v1::{self, source::From, upload_bundle_request::Part};
use std::collections::BTreeSet;
use tonic::{Code, Status};

/// A word that occurs in everything of the first tenant, and nowhere else.
const CANARY: &str = "canary-7f3a";

/// The ids of the resources of the first tenant.
struct ForeignIds {
    tenant: String,
    project: String,
    session: String,
    message: String,
    part: String,
    permission: String,
    question: String,
    pty: String,
    bundle: testkit::git::Bundle,
    key_prefix: String,
    /// The digest of an environment that its repository proposes.
    environment: String,
}

/// Clients cannot reach the services of the sandbox and the broker.
const INNER_SERVICES: [&str; 4] = ["SandboxService", "TerminalService", "BrokerService", "ForgeService"];
/// A call with an id of the other tenant: the rpc, the expected code, and the result.
type Attack = (&'static str, &'static str, Result<(), Status>);

fn bundle_source(bundle: &str) -> Option<v1::Source> {
    Some(v1::Source { from: Some(From::BundleId(bundle.to_owned())), revision: String::new() })
}

/// Creates a tenant with a prompted session, a project, a bundle and a key that all contain the canary.
async fn theirs(api: &Api) -> ForeignIds {
    let config = format!("environment:\n  env: {{CANARY: {CANARY}}}\n");
    let files = [("secret.txt", CANARY), (".flotilla/config.yaml", config.as_str())];
    let bundle = testkit::git::repository(&files).bundle();
    api.upload(&bundle).await;
    let request = v1::CreateProjectRequest {
        name: CANARY.to_owned(),
        source: bundle_source(&bundle.sha256),
        ..Default::default()
    };
    let project = api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id;
    let request = v1::CreateSessionRequest {
        project_id: project.clone(),
        title: CANARY.to_owned(),
        idempotency_key: "same".to_owned(),
        ..Default::default()
    };
    let session = api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    let prompt = format!("@tool bash {{\"command\":\"cat secret.txt\"}}\n@text {CANARY}");
    assert_eq!(run(api, &session, &prompt).await.0, "done");
    let talk = api.conversation(&session).await;
    let message = talk[0].0["id"].as_str().unwrap().to_owned();
    let part = talk[0].1[0]["id"].as_str().unwrap().to_owned();
    let permission = open_request(api, "permission.asked", &bash(CANARY)).await;
    let options = serde_json::json!([{"label": CANARY, "description": CANARY}]);
    let ask =
        serde_json::json!({"questions": [{"question": CANARY, "header": "canary", "options": options}]});
    let question = open_request(api, "question.asked", &format!("@tool question {ask}")).await;
    let request =
        v1::CreatePtyRequest { session_id: session.clone(), title: CANARY.to_owned(), ..Default::default() };
    let pty = api.ptys().create_pty(request).await.unwrap().into_inner().pty.unwrap().id;
    let request = v1::CreateKeyRequest {
        tenant_id: String::new(),
        name: CANARY.to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    let key = api.tenants().create_key(request).await.unwrap().into_inner().key.unwrap();
    let (tenant, key_prefix) = (api.tenant_id.clone(), key.prefix);
    let request = v1::ListProposedEnvironmentsRequest { project_id: project.clone(), ..Default::default() };
    let proposed = api.environments().list_proposed_environments(request).await.unwrap().into_inner();
    let environment = proposed.environments[0].digest.clone();
    ForeignIds {
        tenant,
        project,
        session,
        message,
        part,
        permission,
        question,
        pty,
        bundle,
        key_prefix,
        environment,
    }
}

/// Creates a session in which a prompt leads to a request of this kind; returns the id of the request.
async fn open_request(api: &Api, kind: &str, prompt: &str) -> String {
    let session = api.session_with_rules(&[("bash", v1::PermissionVerdict::Ask)]).await;
    api.prompt(&session, prompt).await.unwrap();
    let request = Watch::start(api, &session).await.until(|event| event.kind == kind).await;
    request.properties["id"].as_str().unwrap().to_owned()
}

/// Calls every rpc of the session service that takes an id.
async fn session_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (id, gone) = (|| theirs.session.clone(), "session_not_found");
    let mut client = api.sessions();
    let export = v1::ExportSessionRequest { session_id: id(), squash: false };
    let create = |project: &str, source| v1::CreateSessionRequest {
        project_id: project.to_owned(),
        source,
        ..Default::default()
    };
    let url = Some(v1::Source {
        from: Some(From::GitUrl("https://a.example/b".to_owned())),
        revision: String::new(),
    });
    let listed = v1::ListSessionsRequest {
        project_id: theirs.project.clone(),
        include_archived: true,
        page: None,
        waiting_only: false,
    };
    let update = v1::UpdateSessionRequest {
        session_id: id(),
        update_mask: Some(prost_types::FieldMask { paths: vec!["title".to_owned(), "archived".to_owned()] }),
        title: "taken".to_owned(),
        archived: true,
        ..Default::default()
    };
    let in_project = client.create_session(create(&theirs.project, None)).await.map(drop);
    let in_project_at_url = client.create_session(create(&theirs.project, url)).await.map(drop);
    let of_bundle =
        client.create_session(create(&api.project_id, bundle_source(&theirs.bundle.sha256))).await;
    let diff = v1::GetSessionDiffRequest { session_id: id(), message_id: theirs.message.clone() };
    let output = v1::GetToolOutputRequest { session_id: id(), path: "/run/sbx/out/x/output".to_owned() };
    let egress = v1::ListEgressRequest { session_id: id(), page: None };
    let children = v1::ListSessionChildrenRequest { session_id: id(), page: None };
    vec![
        ("CreateSession", "project_not_found", in_project),
        ("CreateSession", "project_not_found", in_project_at_url),
        ("CreateSession", "bundle_not_found", of_bundle.map(drop)),
        ("ListSessions", "project_not_found", client.list_sessions(listed).await.map(drop)),
        ("GetSession", gone, client.get_session(v1::GetSessionRequest { session_id: id() }).await.map(drop)),
        ("UpdateSession", gone, client.update_session(update).await.map(drop)),
        ("ListSessionChildren", gone, client.list_session_children(children).await.map(drop)),
        (
            "AbortSession",
            gone,
            client.abort_session(v1::AbortSessionRequest { session_id: id() }).await.map(drop),
        ),
        ("GetSessionDiff", gone, client.get_session_diff(diff).await.map(drop)),
        ("ListEgress", gone, client.list_egress(egress).await.map(drop)),
        ("GetToolOutput", gone, client.get_tool_output(output).await.map(drop)),
        ("ExportSession", gone, client.export_session(export).await.map(drop)),
        (
            "PushSession",
            gone,
            client
                .push_session(v1::PushSessionRequest { session_id: id(), ..Default::default() })
                .await
                .map(drop),
        ),
        (
            "DeleteSession",
            gone,
            client.delete_session(v1::DeleteSessionRequest { session_id: id() }).await.map(drop),
        ),
    ]
}

/// Attacks on the history and the files of a session.
async fn history_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (id, gone) = (|| theirs.session.clone(), "session_not_found");
    let mut client = api.sessions();
    let revert = v1::RevertSessionRequest {
        session_id: id(),
        message_id: theirs.message.clone(),
        part_id: String::new(),
    };
    let fork =
        v1::ForkSessionRequest { session_id: id(), message_id: theirs.message.clone(), ..Default::default() };
    let unrevert = v1::UnrevertSessionRequest { session_id: id() };
    let restart = v1::RestartWorkspaceRequest { session_id: id() };
    vec![
        ("RevertSession", gone, client.revert_session(revert).await.map(drop)),
        ("UnrevertSession", gone, client.unrevert_session(unrevert).await.map(drop)),
        ("ForkSession", gone, client.fork_session(fork).await.map(drop)),
        ("RestartWorkspace", gone, client.restart_workspace(restart).await.map(drop)),
    ]
}

/// Calls the other rpcs that take the id of a session, a message or a request.
async fn conversation_attacks(api: &Api, own: &str, theirs: &ForeignIds) -> Vec<Attack> {
    let (id, gone) = (|| theirs.session.clone(), "session_not_found");
    let message = |session: &str| v1::GetMessageRequest {
        session_id: session.to_owned(),
        message_id: theirs.message.clone(),
    };
    let listed = v1::ListMessagesRequest { session_id: id(), page: None };
    let subscribe = v1::SubscribeRequest { session_id: id(), ..Default::default() };
    let all = v1::SubscribeAllRequest { project_id: theirs.project.clone(), ..Default::default() };
    let permissions = v1::ListPermissionsRequest { session_id: id(), ..Default::default() };
    let permission = v1::ReplyPermissionRequest {
        permission_id: theirs.permission.clone(),
        answer: 1,
        ..Default::default()
    };
    let approval = v1::DeleteApprovalRequest { permission_id: theirs.permission.clone() };
    let (read, set) = (
        v1::GetSessionBudgetRequest { session_id: id() },
        v1::SetSessionBudgetRequest { session_id: id(), max_usd_picos: 0 },
    );
    let explain = v1::ExplainSettingsRequest { session_id: id() };
    let questions = v1::ListQuestionsRequest { session_id: id(), ..Default::default() };
    let question = v1::ReplyQuestionRequest { question_id: theirs.question.clone(), ..Default::default() };
    let mut messages = api.messages();
    vec![
        ("AcceptPrompt", gone, api.prompt(&theirs.session, "@text taken").await.map(drop)),
        ("GetSessionBudget", gone, api.sessions().get_session_budget(read).await.map(drop)),
        ("SetSessionBudget", gone, api.sessions().set_session_budget(set).await.map(drop)),
        ("ListMessages", gone, messages.list_messages(listed).await.map(drop)),
        ("GetMessage", "message_not_found", messages.get_message(message(&theirs.session)).await.map(drop)),
        ("GetMessage", "message_not_found", messages.get_message(message(own)).await.map(drop)),
        ("Subscribe", gone, api.events().subscribe(subscribe).await.map(drop)),
        ("SubscribeAll", "project_not_found", api.events().subscribe_all(all).await.map(drop)),
        ("ListPermissions", gone, api.permissions().list_permissions(permissions).await.map(drop)),
        (
            "ReplyPermission",
            "permission_not_found",
            api.permissions().reply_permission(permission).await.map(drop),
        ),
        ("DeleteApproval", "approval_not_found", api.permissions().delete_approval(approval).await.map(drop)),
        ("ExplainSettings", gone, api.settings().explain_settings(explain).await.map(drop)),
        ("ListQuestions", gone, api.questions().list_questions(questions).await.map(drop)),
        ("ReplyQuestion", "question_not_found", api.questions().reply_question(question).await.map(drop)),
    ]
}

/// Calls the rpcs of terminals, by the session and by the id of the terminal.
async fn pty_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (session_id, pty_id) = (|| theirs.session.clone(), || theirs.pty.clone());
    let (create, list) = (
        v1::CreatePtyRequest { session_id: session_id(), ..Default::default() },
        v1::ListPtysRequest { session_id: session_id() },
    );
    let update = v1::UpdatePtyRequest { pty_id: pty_id(), title: "taken".to_owned(), size: None };
    let attach =
        v1::AttachPtyRequest { pty_id: pty_id(), data: b"touch taken\n".to_vec(), ..Default::default() };
    let (get, delete) = (v1::GetPtyRequest { pty_id: pty_id() }, v1::DeletePtyRequest { pty_id: pty_id() });
    let (gone, mut ptys) = ("pty_not_found", api.ptys());
    vec![
        ("CreatePty", "session_not_found", ptys.create_pty(create).await.map(drop)),
        ("ListPtys", "session_not_found", ptys.list_ptys(list).await.map(drop)),
        ("GetPty", gone, ptys.get_pty(get).await.map(drop)),
        ("UpdatePty", gone, ptys.update_pty(update).await.map(drop)),
        ("AttachPty", gone, ptys.attach_pty(tokio_stream::once(attach)).await.map(drop)),
        ("DeletePty", gone, ptys.delete_pty(delete).await.map(drop)),
    ]
}

/// Calls the rpcs of projects, bundles and keys.
async fn tenant_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (mut projects, mut tenants, mut admin) = (api.projects(), api.tenants(), api.admin());
    let (session_id, operator) = (|| theirs.session.clone(), "operator_only");
    let limits = v1::UpdateTenantRequest {
        tenant_id: theirs.tenant.clone(),
        running_max: 1,
        weight: 1,
        ..Default::default()
    };
    let end = v1::DeleteTenantRequest { tenant_id: theirs.tenant.clone(), name: "acme".to_owned() };
    let release = v1::ReleaseSessionRequest { session_id: session_id(), ..Default::default() };
    let kill = v1::KillSessionRequest { session_id: session_id(), ..Default::default() };
    let get = v1::GetProjectRequest { project_id: theirs.project.clone() };
    let read = v1::GetSettingsRequest { project_id: theirs.project.clone() };
    let write = v1::SetSettingsRequest { project_id: theirs.project.clone(), document: "{}".to_owned() };
    let update = v1::SetProjectSourceRequest { project_id: theirs.project.clone(), ..Default::default() };
    let delete = v1::DeleteProjectRequest { project_id: theirs.project.clone() };
    let create = v1::CreateProjectRequest {
        name: "x".to_owned(),
        source: bundle_source(&theirs.bundle.sha256),
        ..Default::default()
    };
    let revoke = |tenant: &str| v1::RevokeKeyRequest {
        tenant_id: tenant.to_owned(),
        prefix: theirs.key_prefix.clone(),
    };
    let bind = v1::BindInstallationRequest { installation_id: 1, tenant_id: theirs.tenant.clone() };
    let app = v1::SetupGithubRequest::default();
    let list = v1::ListKeysRequest { tenant_id: theirs.tenant.clone(), page: None };
    let usage = v1::ListUsageRequest { tenant_id: theirs.tenant.clone(), page: None };
    let audit = v1::ListAuditRequest { tenant_id: theirs.tenant.clone(), page: None };
    let new_key = v1::CreateKeyRequest {
        tenant_id: theirs.tenant.clone(),
        name: "x".to_owned(),
        role: v1::KeyRole::Admin.into(),
    };
    vec![
        ("BindInstallation", operator, api.github().bind_installation(bind).await.map(drop)),
        ("SetupGithub", operator, api.github().setup_github(app).await.map(drop)),
        ("GetProject", "project_not_found", projects.get_project(get).await.map(drop)),
        ("GetSettings", "project_not_found", api.settings().get_settings(read).await.map(drop)),
        ("SetSettings", "project_not_found", api.settings().set_settings(write).await.map(drop)),
        ("SetProjectSource", "project_not_found", projects.set_project_source(update).await.map(drop)),
        ("DeleteProject", "project_not_found", projects.delete_project(delete).await.map(drop)),
        ("CreateProject", "bundle_not_found", projects.create_project(create).await.map(drop)),
        ("CreateKey", "tenant_not_found", tenants.create_key(new_key).await.map(drop)),
        ("ListKeys", "tenant_not_found", tenants.list_keys(list).await.map(drop)),
        ("ListUsage", "tenant_not_found", tenants.list_usage(usage).await.map(drop)),
        ("ListAudit", "tenant_not_found", api.audit().list_audit(audit).await.map(drop)),
        ("RevokeKey", "tenant_not_found", tenants.revoke_key(revoke(&theirs.tenant)).await.map(drop)),
        ("DeleteTenant", operator, tenants.delete_tenant(end).await.map(drop)),
        ("UpdateTenant", operator, tenants.update_tenant(limits).await.map(drop)),
        ("ReleaseSession", operator, admin.release_session(release).await.map(drop)),
        ("KillSession", operator, admin.kill_session(kill).await.map(drop)),
        ("RevokeKey", "key_not_found", tenants.revoke_key(revoke("")).await.map(drop)),
    ]
}

/// Calls the rpcs of worktrees. Their directories are names in a project.
async fn worktree_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (project_id, directory) = (|| theirs.project.clone(), || "acme.worktrees/fix".to_owned());
    let create = v1::CreateWorktreeRequest { project_id: project_id(), name: "taken".to_owned() };
    let list = v1::ListWorktreesRequest { project_id: project_id() };
    let reset = v1::ResetWorktreeRequest { project_id: project_id(), directory: directory() };
    let remove = v1::RemoveWorktreeRequest { project_id: project_id(), directory: directory() };
    let (unknown, mut projects) = ("project_not_found", api.projects());
    vec![
        ("CreateWorktree", unknown, projects.create_worktree(create).await.map(drop)),
        ("ListWorktrees", unknown, projects.list_worktrees(list).await.map(drop)),
        ("ResetWorktree", unknown, projects.reset_worktree(reset).await.map(drop)),
        ("RemoveWorktree", unknown, projects.remove_worktree(remove).await.map(drop)),
    ]
}

/// Calls the rpcs of secrets.
async fn secret_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let (project_id, name) = (|| theirs.project.clone(), || "TOKEN".to_owned());
    let set = v1::SetSecretRequest {
        name: name(),
        project_id: project_id(),
        value: b"mine".to_vec(),
        urls: vec![],
    };
    let list = v1::ListSecretsRequest { project_id: project_id(), page: None };
    let delete = v1::DeleteSecretRequest { name: name(), project_id: project_id() };
    let mut secrets = api.secrets();
    vec![
        ("SetSecret", "project_not_found", secrets.set_secret(set).await.map(drop)),
        ("ListSecrets", "project_not_found", secrets.list_secrets(list).await.map(drop)),
        ("DeleteSecret", "project_not_found", secrets.delete_secret(delete).await.map(drop)),
    ]
}

/// Calls the rpcs of environments. Their keys are digests; the tests of setups try those of another tenant.
async fn environment_attacks(api: &Api, theirs: &ForeignIds) -> Vec<Attack> {
    let list = v1::ListEnvironmentsRequest { project_id: theirs.project.clone() };
    let proposed =
        v1::ListProposedEnvironmentsRequest { project_id: theirs.project.clone(), ..Default::default() };
    let digest = theirs.environment.clone();
    let verdict = v1::EnvironmentVerdict::Denied.into();
    let decide = v1::DecideEnvironmentRequest { project_id: theirs.project.clone(), digest, verdict };
    let of_session = v1::GetSessionEnvironmentRequest { session_id: theirs.session.clone() };
    let mut environments = api.environments();
    vec![
        (
            "GetSessionEnvironment",
            "session_not_found",
            environments.get_session_environment(of_session).await.map(drop),
        ),
        ("ListEnvironments", "project_not_found", environments.list_environments(list).await.map(drop)),
        (
            "ListProposedEnvironments",
            "project_not_found",
            environments.list_proposed_environments(proposed).await.map(drop),
        ),
        ("DecideEnvironment", "project_not_found", environments.decide_environment(decide).await.map(drop)),
    ]
}

/// Lists the public rpcs whose request contains an id of a tenant's resource, according to the description of the protocol.
fn naming_rpcs() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(rpc::DESCRIPTORS).unwrap().file;
    let messages: Vec<DescriptorProto> = files.iter().flat_map(|file| file.message_type.clone()).collect();
    let names_something = |request: &str| {
        let request = request.rsplit('.').next().unwrap();
        let message = messages.iter().find(|message| message.name() == request).unwrap();
        message
            .field
            .iter()
            .any(|field| field.name().ends_with("_id") || field.type_name() == ".flotilla.v1.Source")
    };
    let services = files.iter().filter(|file| file.package() == "flotilla.v1").flat_map(|file| &file.service);
    let methods = services
        .filter(|service| !INNER_SERVICES.contains(&service.name()))
        .flat_map(|service| &service.method);
    methods.filter(|rpc| names_something(rpc.input_type())).map(|rpc| rpc.name().to_owned()).collect()
}

#[tokio::test]
async fn data_of_another_tenant_is_not_found() {
    let stack = Stack::start().await;
    let theirs = theirs(&stack.api).await;
    let api = stack.other_tenant().await;
    let own = api.session(None).await;
    let mut attacks = session_attacks(&api, &theirs).await;
    attacks.extend(history_attacks(&api, &theirs).await);
    attacks.extend(conversation_attacks(&api, &own, &theirs).await);
    attacks.extend(pty_attacks(&api, &theirs).await);
    attacks.extend(tenant_attacks(&api, &theirs).await);
    attacks.extend(worktree_attacks(&api, &theirs).await);
    attacks.extend(secret_attacks(&api, &theirs).await);
    attacks.extend(environment_attacks(&api, &theirs).await);
    for (rpc, expected, answer) in &attacks {
        let status = answer.as_ref().expect_err(rpc);
        let kind = if *expected == "operator_only" { Code::PermissionDenied } else { Code::NotFound };
        assert_eq!((status.code(), code(status).as_str()), (kind, *expected), "{rpc}: {status:?}");
        assert!(!status.message().contains(CANARY), "{rpc}: {status:?}");
    }
    let attacked: BTreeSet<String> = attacks.iter().map(|(rpc, _, _)| (*rpc).to_owned()).collect();
    assert_eq!(attacked, naming_rpcs(), "every rpc with an id is tried");
    let tried = described::attack(&stack, &api, &theirs).await;
    assert!(tried > 50, "only {tried} were tried");
    // Not even its existence is revealed: a bundle with a hash that the other tenant uploaded must be uploaded here as well.
    let bundle = &theirs.bundle;
    let header = v1::BundleHeader { size_bytes: bundle.bytes.len() as u64, sha256: bundle.sha256.clone() };
    let only_header = tokio_stream::once(v1::UploadBundleRequest { part: Some(Part::Header(header)) });
    let refused = api.projects().upload_bundle(only_header).await.unwrap_err();
    assert_eq!(code(&refused), "bundle_invalid");
    // None of the calls had an effect.
    let after = stack.api.get(&theirs.session).await;
    assert_eq!((after.title.as_str(), after.archived_at_ms), (CANARY, 0));
    assert_eq!(
        stack.api.conversation(&theirs.session).await.len(),
        4,
        "a prompt, a note about the environment that waits, a step with a tool, an answer"
    );
    assert_works(&stack.api, &theirs.session).await;
    assert_works(&api, &own).await;
}

#[tokio::test]
async fn lists_and_workspaces_show_only_the_callers_tenant() {
    let stack = Stack::start().await;
    let theirs = theirs(&stack.api).await;
    let api = stack.other_tenant().await;
    let request = v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        idempotency_key: "same".to_owned(),
        ..Default::default()
    };
    let own = api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    assert_ne!(own, theirs.session, "an idempotency key belongs to one tenant");
    let look = "grep -rls 'canar[y]-7f3a' /workspace /tmp /run /home /var /etc; ls /workspace; echo looked";
    let prompt = format!("@tool bash {}\n@text nothing", serde_json::json!({"command": look}));
    assert_eq!(run(&api, &own, &prompt).await.0, "done");
    assert_eq!(api.tool_calls(&own).await[0].result, "looked\n", "another tenant's files are unreachable");
    let all = v1::ListSessionsRequest { include_archived: true, ..Default::default() };
    let sessions = api.sessions().list_sessions(all).await.unwrap().into_inner();
    let projects =
        api.projects().list_projects(v1::ListProjectsRequest::default()).await.unwrap().into_inner();
    let keys = api.tenants().list_keys(v1::ListKeysRequest::default()).await.unwrap().into_inner();
    let permissions =
        api.permissions().list_permissions(v1::ListPermissionsRequest::default()).await.unwrap();
    let questions = api.questions().list_questions(v1::ListQuestionsRequest::default()).await.unwrap();
    assert_eq!((sessions.sessions.len(), projects.projects.len(), keys.keys.len()), (1, 1, 1));
    let talk = api.conversation(&own).await;
    let (_, transcript) = run(&api, &own, "@text again").await;
    let answers =
        format!("{sessions:?}{projects:?}{keys:?}{permissions:?}{questions:?}{talk:?}{transcript:?}");
    for secret in
        [CANARY, &theirs.session, &theirs.project, &theirs.message, &theirs.tenant, &theirs.key_prefix]
    {
        assert!(!answers.contains(secret), "{secret} is shown");
    }
    let to_model = stack.model.journal.requests().into_iter();
    let to_model = to_model.filter(|request| request.headers.get("x-session-id") == Some(&own));
    let to_model: String = to_model.map(|request| request.body.to_string()).collect();
    assert!(!to_model.is_empty() && !to_model.contains(CANARY), "the model receives none of it");
    let denied = api.tenants().list_tenants(v1::ListTenantsRequest::default()).await.unwrap_err();
    assert_eq!((denied.code(), code(&denied).as_str()), (Code::PermissionDenied, "operator_only"));
}
