//! The gateway as one tenant uses it.

use crate::settings::OPERATOR_KEY;
use rpc::{
    client::Bearer,
    v1::{
        self, admin_service_client::AdminServiceClient, audit_service_client::AuditServiceClient,
        environment_service_client::EnvironmentServiceClient, event_service_client::EventServiceClient,
        github_service_client::GithubServiceClient, message_service_client::MessageServiceClient,
        permission_service_client::PermissionServiceClient, project_service_client::ProjectServiceClient,
        prompt_service_client::PromptServiceClient, pty_service_client::PtyServiceClient,
        question_service_client::QuestionServiceClient, secret_service_client::SecretServiceClient,
        session_service_client::SessionServiceClient, settings_service_client::SettingsServiceClient,
        tenant_service_client::TenantServiceClient,
    },
};
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

/// A channel with a key.
pub type Authorized = InterceptedService<Channel, Bearer>;

/// Clients with one tenant's key.
#[derive(Clone)]
pub struct Api {
    channel: Channel,
    pub key: String,
    /// The tenant's id; empty after [`Api::with_key`].
    pub tenant_id: String,
    /// A project of the tenant.
    pub project_id: String,
}

/// Returns the stable code of an error.
pub fn code(status: &Status) -> String {
    rpc::status::code_of(status).unwrap_or_else(|| format!("no code, but {status:?}"))
}

/// Asserts that a call was refused with this gRPC code and stable code, and returns the message.
#[track_caller]
pub fn assert_refused<T>(result: Result<T, Status>, grpc: Code, stable: &str) -> String {
    match result {
        Ok(_) => panic!("expected {stable}, but the call succeeded"),
        Err(status) => {
            assert_eq!((status.code(), code(&status).as_str()), (grpc, stable), "{status:?}");
            status.message().to_owned()
        }
    }
}

/// A tool call in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The name of the tool in the call of the model.
    pub tool: String,
    /// `pending`, `running`, `completed` or `error`.
    pub status: String,
    pub input: serde_json::Value,
    /// The result that the model received.
    pub result: String,
}

impl Api {
    /// Creates clients with any key.
    pub fn with_key(gateway_url: &str, key: &str) -> Self {
        let channel = chassis::grpc::channel(gateway_url).expect("an address");
        Self { channel, key: key.to_owned(), tenant_id: String::new(), project_id: String::new() }
    }

    /// Returns clients of the same tenant with a separate connection to a gateway.
    pub fn at(&self, gateway_url: &str) -> Self {
        let channel = chassis::grpc::channel(gateway_url).expect("an address");
        Self { channel, ..self.clone() }
    }

    /// Returns clients of the same tenant with another of its keys.
    pub fn of_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// Creates clients of a stack that `flotilla up` started, with a new project.
    pub async fn of_stack(gateway_url: &str, key: &str) -> Self {
        let mut api = Self::with_key(gateway_url, key);
        api.project_id = api.project().await;
        api
    }

    async fn project(&self) -> String {
        let request = v1::CreateProjectRequest { name: "project".to_owned(), ..Default::default() };
        let project = self.projects().create_project(request).await.expect("a project").into_inner();
        project.project.expect("a project").id
    }

    /// Creates a tenant of a test stack with a key and a project.
    pub async fn new_tenant(gateway_url: &str, name: &str) -> Self {
        Self::created_by(&Self::with_key(gateway_url, OPERATOR_KEY), gateway_url, name).await
    }

    /// Creates a tenant with a key and a project, in the name of the operator.
    pub async fn created_by(operator: &Self, gateway_url: &str, name: &str) -> Self {
        let request = v1::CreateTenantRequest { name: name.to_owned() };
        let tenant = operator.tenants().create_tenant(request).await.expect("a tenant").into_inner();
        let tenant_id = tenant.tenant.expect("a tenant").id;
        let request = v1::CreateKeyRequest {
            tenant_id: tenant_id.clone(),
            name: "test".to_owned(),
            role: v1::KeyRole::Admin.into(),
        };
        let key = operator.tenants().create_key(request).await.expect("a key").into_inner().secret;
        let mut api = Self { tenant_id, ..Self::with_key(gateway_url, &key) };
        api.project_id = api.project().await;
        api
    }

    fn authorized(&self) -> Authorized {
        InterceptedService::new(self.channel.clone(), Bearer::new(&self.key).expect("a key"))
    }

    /// Client of `SessionService`.
    pub fn sessions(&self) -> SessionServiceClient<Authorized> {
        SessionServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    /// Client of `GithubService`.
    pub fn github(&self) -> GithubServiceClient<Authorized> {
        GithubServiceClient::new(self.authorized())
    }

    /// Client of `PromptService`.
    pub fn prompts(&self) -> PromptServiceClient<Authorized> {
        PromptServiceClient::new(self.authorized()).max_encoding_message_size(64 * 1024 * 1024)
    }

    /// Client of `MessageService`.
    pub fn messages(&self) -> MessageServiceClient<Authorized> {
        MessageServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    /// Client of `EventService`.
    pub fn events(&self) -> EventServiceClient<Authorized> {
        EventServiceClient::new(self.authorized()).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    /// Client of `PermissionService`.
    pub fn permissions(&self) -> PermissionServiceClient<Authorized> {
        PermissionServiceClient::new(self.authorized())
    }

    /// Client of `SettingsService`.
    pub fn settings(&self) -> SettingsServiceClient<Authorized> {
        SettingsServiceClient::new(self.authorized())
    }

    /// Stores settings with this environment for a project, or for the tenant if `project_id` is empty.
    pub async fn set_environment(&self, project_id: &str, environment: &serde_json::Value) {
        let document = serde_json::json!({"environment": environment}).to_string();
        let request = v1::SetSettingsRequest { project_id: project_id.to_owned(), document };
        self.settings().set_settings(request).await.expect("stored settings");
    }

    /// Stores a secret of the tenant.
    pub async fn set_secret(&self, name: &str, value: &str) {
        let request = v1::SetSecretRequest {
            name: name.to_owned(),
            project_id: String::new(),
            value: value.as_bytes().to_vec(),
            urls: vec![],
        };
        self.secrets().set_secret(request).await.expect("a stored secret");
    }

    /// Client of `PtyService`.
    pub fn ptys(&self) -> PtyServiceClient<Authorized> {
        PtyServiceClient::new(self.authorized())
    }

    /// Client of `EnvironmentService`.
    pub fn environments(&self) -> EnvironmentServiceClient<Authorized> {
        EnvironmentServiceClient::new(self.authorized())
    }

    /// Client of `SecretService`.
    pub fn secrets(&self) -> SecretServiceClient<Authorized> {
        SecretServiceClient::new(self.authorized())
    }

    /// Client of `QuestionService`.
    pub fn questions(&self) -> QuestionServiceClient<Authorized> {
        QuestionServiceClient::new(self.authorized())
    }

    /// Client of `ProjectService`.
    pub fn projects(&self) -> ProjectServiceClient<Authorized> {
        ProjectServiceClient::new(self.authorized())
    }

    /// Client of `AuditService`.
    pub fn audit(&self) -> AuditServiceClient<Authorized> {
        AuditServiceClient::new(self.authorized())
    }

    /// Client of `TenantService`.
    pub fn tenants(&self) -> TenantServiceClient<Authorized> {
        TenantServiceClient::new(self.authorized())
    }

    /// Client of `AdminService`.
    pub fn admin(&self) -> AdminServiceClient<Authorized> {
        AdminServiceClient::new(self.authorized())
    }

    /// Creates a session with permission rules: `tool` or `tool:pattern`.
    pub async fn session_with_rules(&self, rules: &[(&str, v1::PermissionVerdict)]) -> String {
        self.session_with(None, rules).await
    }

    /// Creates a session with a source and permission rules.
    pub async fn session_with(
        &self,
        source: Option<v1::Source>,
        rules: &[(&str, v1::PermissionVerdict)],
    ) -> String {
        let rule = |(rule, verdict): &(&str, v1::PermissionVerdict)| {
            let (permission, pattern) = rule.split_once(':').unwrap_or((rule, ""));
            let (permission, pattern) = (permission.to_owned(), pattern.to_owned());
            v1::PermissionRule { permission, pattern, verdict: (*verdict).into() }
        };
        let request = v1::CreateSessionRequest {
            project_id: self.project_id.clone(),
            title: "test".to_owned(),
            permission_rules: rules.iter().map(rule).collect(),
            source,
            ..Default::default()
        };
        let created = self.sessions().create_session(request).await.expect("a session").into_inner();
        created.session.expect("a session").id
    }

    pub async fn reply(&self, id: &str, answer: v1::PermissionAnswer, message: &str) -> Result<(), Status> {
        let request = v1::ReplyPermissionRequest {
            permission_id: id.to_owned(),
            answer: answer.into(),
            message: message.to_owned(),
            ..Default::default()
        };
        self.permissions().reply_permission(request).await.map(drop)
    }

    /// Lists the child sessions of a session, oldest first.
    pub async fn children(&self, session_id: &str) -> Vec<v1::Session> {
        let request = v1::ListSessionChildrenRequest { session_id: session_id.to_owned(), page: None };
        let mut children =
            self.sessions().list_session_children(request).await.expect("children").into_inner().sessions;
        children.sort_by_key(|child| child.created_at_ms);
        children
    }

    pub async fn session(&self, source: Option<v1::Source>) -> String {
        self.try_session(source).await.expect("a session").id
    }

    /// Creates a session, or returns the refusal.
    pub async fn try_session(&self, source: Option<v1::Source>) -> Result<v1::Session, Status> {
        let request = v1::CreateSessionRequest {
            project_id: self.project_id.clone(),
            title: "test".to_owned(),
            source,
            ..Default::default()
        };
        Ok(self.sessions().create_session(request).await?.into_inner().session.expect("a session"))
    }

    pub async fn get(&self, session_id: &str) -> v1::Session {
        let request = v1::GetSessionRequest { session_id: session_id.to_owned() };
        self.sessions()
            .get_session(request)
            .await
            .expect("a session")
            .into_inner()
            .session
            .expect("a session")
    }

    /// Sends a prompt, or returns the refusal.
    pub async fn prompt(&self, session_id: &str, text: &str) -> Result<v1::AcceptPromptResponse, Status> {
        let request = v1::AcceptPromptRequest {
            session_id: session_id.to_owned(),
            text: text.to_owned(),
            ..Default::default()
        };
        Ok(self.prompts().accept_prompt(request).await?.into_inner())
    }

    /// Sends any prompt, or returns the refusal.
    pub async fn prompt_with(
        &self,
        session_id: &str,
        change: impl FnOnce(&mut v1::AcceptPromptRequest),
    ) -> Result<v1::AcceptPromptResponse, Status> {
        let mut request = v1::AcceptPromptRequest { session_id: session_id.to_owned(), ..Default::default() };
        change(&mut request);
        Ok(self.prompts().accept_prompt(request).await?.into_inner())
    }

    /// Sends a prompt for the model `demo` of a provider.
    pub async fn prompt_on(&self, session_id: &str, provider: &str, text: &str) -> v1::AcceptPromptResponse {
        let request = v1::AcceptPromptRequest {
            session_id: session_id.to_owned(),
            text: text.to_owned(),
            model: Some(v1::ModelRef { provider_id: provider.to_owned(), model_id: "demo".to_owned() }),
            ..Default::default()
        };
        self.prompts().accept_prompt(request).await.expect("an accepted prompt").into_inner()
    }

    /// Aborts a turn, and returns whether one was active.
    pub async fn abort(&self, session_id: &str) -> Result<bool, Status> {
        let request = v1::AbortSessionRequest { session_id: session_id.to_owned() };
        Ok(self.sessions().abort_session(request).await?.into_inner().was_active)
    }

    /// Uploads a bundle and returns its id.
    pub async fn upload(&self, bundle: &testkit::git::Bundle) -> String {
        use v1::upload_bundle_request::Part;
        let header =
            v1::BundleHeader { size_bytes: bundle.bytes.len() as u64, sha256: bundle.sha256.clone() };
        let pieces = bundle.bytes.chunks(64 * 1024).map(|piece| Part::Data(piece.to_vec()));
        let messages: Vec<_> = std::iter::once(Part::Header(header))
            .chain(pieces)
            .map(|part| v1::UploadBundleRequest { part: Some(part) })
            .collect();
        let stream = tokio_stream::iter(messages);
        self.projects().upload_bundle(stream).await.expect("an upload").into_inner().bundle_id
    }

    /// Lists the tool calls of a session in order.
    pub async fn tool_calls(&self, session_id: &str) -> Vec<ToolCall> {
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let call = |part: &serde_json::Value| {
            let state = &part["state"];
            let result = if state["status"] == "error" { &state["error"] } else { &state["output"] };
            ToolCall {
                tool: word(&part["tool"]),
                status: word(&state["status"]),
                input: state["input"].clone(),
                result: word(result),
            }
        };
        let messages = self.conversation(session_id).await;
        messages.iter().flat_map(|(_, parts)| parts).filter(|part| part["type"] == "tool").map(call).collect()
    }

    /// Lists the messages of a session, oldest first, each with its parts as JSON.
    pub async fn conversation(&self, session_id: &str) -> Vec<(serde_json::Value, Vec<serde_json::Value>)> {
        let page = Some(v1::Page { limit: 200, cursor: String::new() });
        let request = v1::ListMessagesRequest { session_id: session_id.to_owned(), page };
        let messages = self.messages().list_messages(request).await.expect("messages").into_inner().messages;
        let json = |text: &str| serde_json::from_str(text).expect("JSON");
        let parts = |message: &v1::Message| message.parts.iter().map(|part| json(&part.json)).collect();
        messages.iter().map(|message| (json(&message.info_json), parts(message))).collect()
    }
}
