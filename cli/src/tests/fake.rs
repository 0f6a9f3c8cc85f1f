//! A gateway for tests: accepts one bundle, one session and one prompt, plays fixed events, and exports a fixed
//! bundle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod environments;
mod history;
mod operator;
mod people;
mod secrets;
mod worktrees;

use crate::{
    arguments::{Cli, Command},
    client::Client,
    exit::Exit,
    terminal::output::Output,
};
use clap::Parser as _;
use domain::text;
use futures::stream::{self, BoxStream, StreamExt as _};
use rpc::v1::{
    admin_service_server::AdminServiceServer,
    audit_service_server::AuditServiceServer,
    environment_service_server::EnvironmentServiceServer,
    event_service_server::{EventService, EventServiceServer},
    message_service_server::MessageServiceServer,
    permission_service_server::PermissionServiceServer,
    project_service_server::{ProjectService, ProjectServiceServer},
    prompt_service_server::{PromptService, PromptServiceServer},
    pty_service_server::PtyServiceServer,
    question_service_server::QuestionServiceServer,
    secret_service_server::SecretServiceServer,
    session_service_server::{SessionService, SessionServiceServer},
    settings_service_server::SettingsServiceServer,
    tenant_service_server::TenantServiceServer,
    *,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status, Streaming};

/// The only session.
pub(crate) const SESSION: &str = "ses_1ffcce3d00015Oy45kUL559D5O";
type Answer<T> = Result<Response<T>, Status>;

/// The recorded calls and the prepared answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake(pub Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Events to play: kind and properties.
    pub events: Vec<(&'static str, Value)>,
    /// Whether the stream stays open after the events.
    pub hangs: bool,
    /// Whether the server refuses the stream.
    pub refuses_stream: bool,
    pub bundle: Vec<u8>,
    pub project: String,
    /// Whether the project of the name that is wanted next is another repository.
    pub is_elsewhere: bool,
    /// The commits whose bundles are already there.
    pub known_commits: Vec<String>,
    pub projects: Vec<Project>,
    /// The environments that repositories propose.
    pub proposed: Vec<ProposedEnvironment>,
    /// What the repository of the session proposes.
    pub of_session: Option<ProposedEnvironment>,
    pub session: CreateSessionRequest,
    pub prompt: AcceptPromptRequest,
    /// The calls in order: "prompt", "subscribe", "subscribe to the tail".
    pub calls: Vec<&'static str>,
    /// Bundle, commit and base of an export.
    pub export: (Vec<u8>, String, String),
    /// The sessions of lists; empty: the only one.
    pub sessions: Vec<Session>,
    /// How often they were listed.
    pub session_lists: u32,
    /// The open requests to people.
    pub permissions: Vec<Permission>,
    pub questions: Vec<Question>,
    /// The answers of people: id and answer.
    pub replies: Vec<String>,
    /// The operator's commands, and the changes to sessions.
    pub orders: Vec<String>,
    /// Whether a shell command begins a build.
    pub begins_build: bool,
    /// Logs of the network may lack the newest connections.
    pub broker_is_away: bool,
    /// The value of the secret that was set last.
    pub secret: Vec<u8>,
    /// What the only session is doing.
    pub state: SessionState,
    pub wait: Option<Wait>,
}

impl Fake {
    /// Runs a command of a tenant.
    pub(crate) async fn run(&self, output: &Output, words: &[&str]) -> anyhow::Result<Exit> {
        let words = ["flotilla"].into_iter().chain(words.iter().copied());
        let Command::Tenant(command) = Cli::try_parse_from(words)?.command else {
            panic!("no command of a tenant")
        };
        crate::call_gateway(&self.serve().await, output, command).await
    }

    /// Serves until the test ends, and returns a client.
    pub(crate) async fn serve(&self) -> Client {
        Client::at(&self.address().await, &"key".parse().unwrap()).unwrap()
    }

    /// Serves until the test ends, and returns the URL.
    pub(crate) async fn address(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(ProjectServiceServer::new(self.clone()))
            .add_service(SessionServiceServer::new(self.clone()))
            .add_service(PromptServiceServer::new(self.clone()))
            .add_service(EventServiceServer::new(self.clone()))
            .add_service(PermissionServiceServer::new(self.clone()))
            .add_service(QuestionServiceServer::new(self.clone()))
            .add_service(MessageServiceServer::new(self.clone()))
            .add_service(SettingsServiceServer::new(self.clone()))
            .add_service(PtyServiceServer::new(self.clone()))
            .add_service(SecretServiceServer::new(self.clone()))
            .add_service(EnvironmentServiceServer::new(self.clone()))
            .add_service(AdminServiceServer::new(self.clone()))
            .add_service(AuditServiceServer::new(self.clone()))
            .add_service(TenantServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
        url
    }
}

/// What a push would change.
fn changed_files() -> Vec<PushedFile> {
    let file = |path: &str| PushedFile { path: path.to_owned(), ..PushedFile::default() };
    vec![
        PushedFile { additions: 3, deletions: 1, size_bytes: 40, ..file("src/a.rs") },
        PushedFile { is_binary: true, is_new: true, size_bytes: 5 << 20, ..file("target/a.bin") },
        PushedFile { deletions: 9, ..file("old") },
    ]
}

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("not part of the fake"))
}

#[tonic::async_trait]
impl ProjectService for Fake {
    async fn create_project(&self, request: Request<CreateProjectRequest>) -> Answer<CreateProjectResponse> {
        let mut state = self.0.lock().unwrap();
        state.project = request.into_inner().name;
        let known = state.projects.iter().find(|known| known.name == state.project).cloned();
        let new = Project { id: "prj_1".to_owned(), name: state.project.clone(), ..Project::default() };
        // Another name is free.
        let (project, is_elsewhere) = (known.unwrap_or(new), std::mem::take(&mut state.is_elsewhere));
        Ok(Response::new(CreateProjectResponse { project: Some(project), is_elsewhere }))
    }

    async fn find_bundle(&self, request: Request<FindBundleRequest>) -> Answer<FindBundleResponse> {
        let FindBundleRequest { commit, .. } = request.into_inner();
        let is_known = self.0.lock().unwrap().known_commits.contains(&commit);
        let bundle_id = if is_known { "bun_0".to_owned() } else { String::new() };
        Ok(Response::new(FindBundleResponse { bundle_id }))
    }

    async fn upload_bundle(
        &self,
        request: Request<Streaming<UploadBundleRequest>>,
    ) -> Answer<UploadBundleResponse> {
        let mut stream = request.into_inner();
        let first = stream.message().await?.unwrap().part.unwrap();
        let upload_bundle_request::Part::Header(header) = first else { panic!("the header comes first") };
        let mut bundle = Vec::new();
        while let Some(UploadBundleRequest { part: Some(upload_bundle_request::Part::Data(data)) }) =
            stream.message().await?
        {
            bundle.extend_from_slice(&data);
        }
        let sha256 = text::hex(&Sha256::digest(&bundle));
        assert_eq!((header.size_bytes, header.sha256), (bundle.len() as u64, sha256));
        self.0.lock().unwrap().bundle = bundle;
        Ok(Response::new(UploadBundleResponse { bundle_id: "bun_1".to_owned() }))
    }

    async fn get_project(&self, request: Request<GetProjectRequest>) -> Answer<GetProjectResponse> {
        let state = self.0.lock().unwrap();
        let project = state.projects.iter().find(|it| it.id == request.get_ref().project_id).cloned();
        let uploaded = UploadedSource { commit: "c0ffee".repeat(6), uploaded_at_ms: 1 };
        Ok(Response::new(GetProjectResponse { project, uploaded: Some(uploaded) }))
    }

    async fn set_project_source(
        &self,
        request: Request<SetProjectSourceRequest>,
    ) -> Answer<SetProjectSourceResponse> {
        let SetProjectSourceRequest { project_id, source, .. } = request.into_inner();
        let mut state = self.0.lock().unwrap();
        let project = state.projects.iter_mut().find(|project| project.id == project_id).unwrap();
        project.source = source;
        Ok(Response::new(SetProjectSourceResponse { project: Some(project.clone()) }))
    }

    async fn delete_project(&self, _: Request<DeleteProjectRequest>) -> Answer<DeleteProjectResponse> {
        Ok(Response::new(DeleteProjectResponse {}))
    }

    async fn create_worktree(
        &self,
        request: Request<CreateWorktreeRequest>,
    ) -> Answer<CreateWorktreeResponse> {
        let CreateWorktreeRequest { project_id, name } = request.into_inner();
        let worktree = Some(self.worktree(format!("create worktree {name:?} of {project_id}")));
        Ok(Response::new(CreateWorktreeResponse { worktree }))
    }

    async fn list_worktrees(&self, request: Request<ListWorktreesRequest>) -> Answer<ListWorktreesResponse> {
        let ListWorktreesRequest { project_id } = request.into_inner();
        let worktrees = vec![self.worktree(format!("list worktrees of {project_id}"))];
        Ok(Response::new(ListWorktreesResponse { worktrees }))
    }

    async fn reset_worktree(&self, request: Request<ResetWorktreeRequest>) -> Answer<ResetWorktreeResponse> {
        let ResetWorktreeRequest { project_id, directory } = request.into_inner();
        let worktree = Some(self.worktree(format!("reset worktree {directory} of {project_id}")));
        Ok(Response::new(ResetWorktreeResponse { worktree }))
    }

    async fn remove_worktree(
        &self,
        request: Request<RemoveWorktreeRequest>,
    ) -> Answer<RemoveWorktreeResponse> {
        let RemoveWorktreeRequest { project_id, directory } = request.into_inner();
        drop(self.worktree(format!("remove worktree {directory} of {project_id}")));
        Ok(Response::new(RemoveWorktreeResponse {}))
    }

    async fn list_projects(&self, _: Request<ListProjectsRequest>) -> Answer<ListProjectsResponse> {
        let projects = self.0.lock().unwrap().projects.clone();
        Ok(Response::new(ListProjectsResponse { projects, next_cursor: String::new() }))
    }
}

#[tonic::async_trait]
impl PromptService for Fake {
    async fn accept_prompt(&self, request: Request<AcceptPromptRequest>) -> Answer<AcceptPromptResponse> {
        let mut state = self.0.lock().unwrap();
        state.prompt = request.into_inner();
        state.calls.push("prompt");
        Ok(Response::new(AcceptPromptResponse { event_seq: 1, ..AcceptPromptResponse::default() }))
    }
}

#[tonic::async_trait]
impl EventService for Fake {
    type SubscribeAllStream = BoxStream<'static, Result<SubscribeAllResponse, Status>>;
    type SubscribeStream = BoxStream<'static, Result<SubscribeResponse, Status>>;

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Answer<Self::SubscribeStream> {
        let mut state = self.0.lock().unwrap();
        if state.refuses_stream {
            return Err(rpc::status::error(
                rpc::v1::ErrorCode::CursorInvalid,
                "the cursor is not one of this session",
            ));
        }
        let tail = request.into_inner().tail_only;
        state.calls.push(if tail { "subscribe to the tail" } else { "subscribe" });
        let events = state.events.iter().zip(2..).map(|((kind, properties), seq)| {
            let properties_json = properties.to_string().into_bytes().into();
            let event =
                Event { seq, epoch: 1, kind: (*kind).to_owned(), properties_json, ..Event::default() };
            Ok(SubscribeResponse {
                item: Some(subscribe_response::Item::Event(event)),
                cursor: seq.to_string(),
            })
        });
        let events = stream::iter(events.collect::<Vec<_>>());
        Ok(Response::new(if state.hangs { events.chain(stream::pending()).boxed() } else { events.boxed() }))
    }

    async fn subscribe_all(&self, _: Request<SubscribeAllRequest>) -> Answer<Self::SubscribeAllStream> {
        Ok(Response::new(stream::empty().boxed()))
    }
}

#[tonic::async_trait]
impl SessionService for Fake {
    type ExportSessionStream = BoxStream<'static, Result<ExportSessionResponse, Status>>;

    async fn create_session(&self, request: Request<CreateSessionRequest>) -> Answer<CreateSessionResponse> {
        let request = request.into_inner();
        if request.validate_only {
            let is_unknown = request.model.is_some_and(|model| model.provider_id == "nope");
            return if is_unknown {
                Err(Status::invalid_argument("no such model: nope/x"))
            } else {
                Ok(Response::new(CreateSessionResponse { session: None }))
            };
        }
        self.0.lock().unwrap().session = request;
        let session = Session { id: SESSION.to_owned(), ..Session::default() };
        Ok(Response::new(CreateSessionResponse { session: Some(session) }))
    }

    async fn get_session(&self, _: Request<GetSessionRequest>) -> Answer<GetSessionResponse> {
        let mut session = Session { id: SESSION.to_owned(), event_seq: 1, ..Session::default() };
        let state = self.0.lock().unwrap();
        session.set_state(state.state);
        session.wait = state.wait.clone();
        Ok(Response::new(GetSessionResponse { session: Some(session) }))
    }

    async fn get_tool_output(&self, _: Request<GetToolOutputRequest>) -> Answer<GetToolOutputResponse> {
        Ok(Response::new(GetToolOutputResponse::default()))
    }

    async fn list_egress(&self, _: Request<ListEgressRequest>) -> Answer<ListEgressResponse> {
        let access = |host: &str, code: &str| EgressAccess {
            host: host.to_owned(),
            code: code.to_owned(),
            connections: 2,
            ..EgressAccess::default()
        };
        let npm = access("registry.npmjs.org", "egress_host_not_allowed");
        let accesses = vec![npm, access("", "egress_request_invalid"), access("pypi.org", "")];
        let newest_missing = self.0.lock().unwrap().broker_is_away;
        Ok(Response::new(ListEgressResponse { accesses, next_cursor: String::new(), newest_missing }))
    }

    async fn get_session_diff(&self, _: Request<GetSessionDiffRequest>) -> Answer<GetSessionDiffResponse> {
        let files = vec![FileStat { path: "a".to_owned(), additions: 1, deletions: 1 }];
        Ok(Response::new(GetSessionDiffResponse { files, ..GetSessionDiffResponse::default() }))
    }

    async fn export_session(&self, _: Request<ExportSessionRequest>) -> Answer<Self::ExportSessionStream> {
        let (bundle, commit, base_commit) = self.0.lock().unwrap().export.clone();
        let first = ExportSessionResponse { commit, base_commit, ..Default::default() };
        let data = bundle
            .chunks(1000)
            .map(|data| ExportSessionResponse { data: data.to_vec(), ..Default::default() });
        let answers: Vec<_> = std::iter::once(first).chain(data).map(Ok).collect();
        Ok(Response::new(stream::iter(answers).boxed()))
    }

    async fn list_sessions(&self, _: Request<ListSessionsRequest>) -> Answer<ListSessionsResponse> {
        let session = Session { id: SESSION.to_owned(), wait: Some(Wait::default()), ..Session::default() };
        let mut state = self.0.lock().unwrap();
        state.session_lists += 1;
        let known = state.sessions.clone();
        let sessions = if known.is_empty() { vec![session] } else { known };
        Ok(Response::new(ListSessionsResponse { sessions, next_cursor: String::new() }))
    }

    async fn get_session_budget(
        &self,
        _: Request<GetSessionBudgetRequest>,
    ) -> Answer<GetSessionBudgetResponse> {
        Ok(Response::new(GetSessionBudgetResponse { budget: Some(Budget::default()) }))
    }

    async fn set_session_budget(
        &self,
        _: Request<SetSessionBudgetRequest>,
    ) -> Answer<SetSessionBudgetResponse> {
        Ok(Response::new(SetSessionBudgetResponse { budget: Some(Budget::default()) }))
    }

    async fn revert_session(&self, request: Request<RevertSessionRequest>) -> Answer<RevertSessionResponse> {
        self.0.lock().unwrap().orders.push(format!("revert {}", request.get_ref().message_id));
        let session = Session { id: SESSION.to_owned(), ..Session::default() };
        Ok(Response::new(RevertSessionResponse { session: Some(session) }))
    }

    async fn fork_session(&self, request: Request<ForkSessionRequest>) -> Answer<ForkSessionResponse> {
        let mut state = self.0.lock().unwrap();
        state.orders.push(request.into_inner().idempotency_key);
        if state.orders.len() == 1 {
            return Err(Status::unavailable("the first answer is lost"));
        }
        let session = Session { id: SESSION.to_owned(), ..Session::default() };
        Ok(Response::new(ForkSessionResponse { session: Some(session) }))
    }

    async fn unrevert_session(&self, _: Request<UnrevertSessionRequest>) -> Answer<UnrevertSessionResponse> {
        Ok(Response::new(UnrevertSessionResponse::default()))
    }

    async fn restart_workspace(
        &self,
        _: Request<RestartWorkspaceRequest>,
    ) -> Answer<RestartWorkspaceResponse> {
        Ok(Response::new(RestartWorkspaceResponse {}))
    }

    async fn update_session(&self, request: Request<UpdateSessionRequest>) -> Answer<UpdateSessionResponse> {
        let request = request.into_inner();
        let paths = request.update_mask.unwrap_or_default().paths.join(",");
        let order = format!("{paths} of {}: {:?} {}", request.session_id, request.title, request.archived);
        self.0.lock().unwrap().orders.push(order);
        Ok(Response::new(UpdateSessionResponse::default()))
    }

    async fn delete_session(&self, _: Request<DeleteSessionRequest>) -> Answer<DeleteSessionResponse> {
        Ok(Response::new(DeleteSessionResponse {}))
    }

    async fn list_session_children(
        &self,
        _: Request<ListSessionChildrenRequest>,
    ) -> Answer<ListSessionChildrenResponse> {
        Ok(Response::new(ListSessionChildrenResponse::default()))
    }

    async fn push_session(&self, request: Request<PushSessionRequest>) -> Answer<PushSessionResponse> {
        let request = request.into_inner();
        let order = if request.dry_run { "dry run".to_owned() } else { request.message };
        self.0.lock().unwrap().orders.push(order);
        Ok(Response::new(PushSessionResponse {
            url: "https://h/r".to_owned(),
            branch: request.branch,
            commit: "c0ffee".to_owned(),
            commits: 1,
            files: 2,
            remote_message: "open a pull request".to_owned(),
            changes: if request.dry_run { changed_files() } else { vec![] },
            left_out: vec!["the stash, 1 entry".to_owned()],
        }))
    }

    async fn abort_session(&self, _: Request<AbortSessionRequest>) -> Answer<AbortSessionResponse> {
        Ok(Response::new(AbortSessionResponse { was_active: true }))
    }
}
