//! `SessionService`: conversations and their workspaces.

use super::{Service, budget, from_sandbox, from_store, id, name, next_cursor, page, session_id, to_wire};
use crate::{
    history,
    intake::{
        self, Aborted,
        agents::{self, Place},
    },
    state::now,
    waits::{self, Limits},
};
use domain::{
    agent::Mode,
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits,
    session::{DEFAULT_AGENT, ExplicitChoices, Origin},
    title,
    wait::Reason,
};
use rpc::{
    status::invalid,
    v1::{self, session_service_server::SessionService},
};
use store::session::{
    creation::{IdempotencyKey, NewSession},
    deletion::Deletion,
    row::Session,
    sessions::{Filter, Patch},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Bytes of the id of a session.
const SESSION_ID_BYTES: usize = 30;

#[tonic::async_trait]
impl SessionService for Service {
    type ExportSessionStream = ReceiverStream<Result<v1::ExportSessionResponse, Status>>;

    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::CreateSessionResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let (class, on_ask) = (request.class(), to_wire::from_on_ask(request.on_ask()));
        let project_id = id(&request.project_id, "project_not_found", "project")?;
        let model = to_wire::from_model(request.model);
        intake::check_model(&self.0, model.as_ref())?;
        intake::check_key(&request.idempotency_key)?;
        let id = named(&request.id, &request.idempotency_key)?;
        if let Some(id) = &id {
            match self.0.store.get_session(tenant, id).await {
                Ok(session) => {
                    let session = Some(to_wire::session(session));
                    return Ok(Response::new(v1::CreateSessionResponse { session }));
                }
                Err(store::error::Error::NotFound(_)) => {}
                Err(error) => return Err(from_store(error)),
            }
        }
        // Of two who make it at the same time, one finds the other's by the key.
        let key = id.as_ref().map_or(request.idempotency_key, |id| id.to_string());
        let key = (!key.is_empty()).then_some(IdempotencyKey { name: key, body_sha256: None });
        let mut source = self.source(tenant, request.source).await?;
        if source.origin == Origin::Empty {
            source = self.0.store.get_project(tenant, &project_id).await.map_err(from_store)?.source;
        }
        let place = Place { tenant, project: &project_id, source: &source };
        agents::check(&self.0, place, std::iter::once((request.agent.as_str(), Mode::Primary))).await?;
        let default = || self.0.models.first().cloned();
        let chosen = ExplicitChoices { agent: !request.agent.is_empty(), model: model.is_some() };
        let new = NewSession {
            id: id.unwrap_or_else(|| self.0.id(SessionId::make)),
            project_id,
            title: if request.title.is_empty() { title::default_at(now()) } else { name(&request.title)? },
            agent: if request.agent.is_empty() { DEFAULT_AGENT.to_owned() } else { request.agent },
            model: model
                .or_else(default)
                .ok_or_else(|| invalid("model_unknown", "no model is configured"))?,
            chosen,
            source,
            class: to_wire::from_class(class),
            rules: to_wire::from_rules(request.permission_rules)?,
            budget: budget::amount(request.budget_usd_picos)?,
            on_ask,
            key,
        };
        let event = self.0.id(EventId::make);
        let (session, events) =
            self.0.store.create_session(tenant, &new, &event, now()).await.map_err(from_store)?;
        self.0.publisher.publish_events(tenant, &session.info.id, &events);
        Ok(Response::new(v1::CreateSessionResponse { session: Some(to_wire::session(session)) }))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let id = session_id(&request.get_ref().session_id)?;
        let session = self.0.store.get_session(tenant, &id).await.map_err(from_store)?;
        let mut wait = Limits::of(&self.0, tenant).await?.explain(&session);
        if let Some(wait) = wait.as_mut().filter(|wait| wait.reason == Reason::Children.as_str()) {
            // After the session was read: a subtask that ended since then is in neither number.
            waits::add_below(wait, self.0.store.count_below(tenant, &id).await.map_err(from_store)?);
        }
        let session = v1::Session { wait, ..to_wire::session(session) };
        Ok(Response::new(v1::GetSessionResponse { session: Some(session) }))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let project = match request.project_id.as_str() {
            "" => None,
            text => {
                let project = id(text, "project_not_found", "project")?;
                Some(self.0.store.get_project(tenant, &project).await.map_err(from_store)?.id)
            }
        };
        let waiting = request.waiting_only;
        let filter = Filter { project, archived: request.include_archived, waiting, ..Filter::default() };
        let page = page(request.page, is_cursor)?;
        let sessions = self.0.store.list_sessions(tenant, &filter, &page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &sessions, |session| place(session.info.time.updated, session));
        let limits = if waiting { Some(Limits::of(&self.0, tenant).await?) } else { None };
        let shown = sessions.into_iter().map(|session| {
            let wait = limits.as_ref().and_then(|limits| limits.explain(&session));
            v1::Session { wait, ..to_wire::session(session) }
        });
        let sessions = shown.collect();
        Ok(Response::new(v1::ListSessionsResponse { sessions, next_cursor }))
    }

    async fn update_session(
        &self,
        request: Request<v1::UpdateSessionRequest>,
    ) -> Result<Response<v1::UpdateSessionResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let id = session_id(&request.session_id)?;
        let mut patch = Patch::default();
        let paths = request.update_mask.unwrap_or_default().paths;
        if paths.is_empty() {
            return Err(invalid(
                "mask_empty",
                "update_mask names nothing to change: title, archived, agent and model can be",
            ));
        }
        for path in paths {
            match path.as_str() {
                "title" => patch.title = Some(name(&request.title)?),
                "archived" => patch.archived = Some(request.archived),
                "agent" => patch.agent = Some(self.agent(tenant, &id, &request.agent).await?),
                "model" => {
                    patch.model = to_wire::from_model(request.model.clone());
                    intake::check_model(&self.0, patch.model.as_ref())?;
                }
                _ => {
                    return Err(invalid(
                        "field_unknown",
                        format!("{path:?} cannot be changed; title, archived, agent and model can"),
                    ));
                }
            }
        }
        let event = self.0.id(EventId::make);
        let (session, events) =
            self.0.store.update_session(tenant, &id, &patch, &event, now()).await.map_err(from_store)?;
        self.0.publisher.publish_events(tenant, &id, &events);
        Ok(Response::new(v1::UpdateSessionResponse { session: Some(to_wire::session(session)) }))
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::DeleteSessionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let id = session_id(&request.get_ref().session_id)?;
        let tenant = principal.tenant;
        let session = self.0.store.get_session(tenant, &id).await.map_err(from_store)?;
        let Deletion { parent, tombstones: gone } =
            self.0.store.delete_session(tenant, &id).await.map_err(from_store)?;
        for tombstone in &gone {
            self.0.publisher.publish_events(tenant, &tombstone.session, &[tombstone.event()]);
            self.0.bus.nudge(tenant, &tombstone.session);
        }
        if let Some(parent) = parent {
            self.0.interrupt(&principal, &parent, session.class).await;
        }
        for tombstone in gone {
            self.close_workspace(tenant, &tombstone.session, tombstone.epoch.saturating_add(1)).await;
        }
        Ok(Response::new(v1::DeleteSessionResponse {}))
    }

    async fn list_session_children(
        &self,
        request: Request<v1::ListSessionChildrenRequest>,
    ) -> Result<Response<v1::ListSessionChildrenResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let parent = session_id(&request.session_id)?;
        self.0.store.get_head(tenant, &parent).await.map_err(from_store)?;
        let page = page(request.page, is_cursor)?;
        let sessions = self.0.store.list_children(tenant, &parent, &page).await.map_err(from_store)?;
        let next_cursor = next_cursor(&page, &sessions, |child| place(child.info.time.created, child));
        let sessions = sessions.into_iter().map(to_wire::session).collect();
        Ok(Response::new(v1::ListSessionChildrenResponse { sessions, next_cursor }))
    }

    async fn abort_session(
        &self,
        request: Request<v1::AbortSessionRequest>,
    ) -> Result<Response<v1::AbortSessionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let id = session_id(&request.get_ref().session_id)?;
        match intake::abort(&self.0, &principal, &id).await? {
            Aborted::Turn => Ok(Response::new(v1::AbortSessionResponse { was_active: true })),
            Aborted::Idle => Ok(Response::new(v1::AbortSessionResponse { was_active: false })),
            Aborted::Quarantined => Err(from_store(store::error::Error::Quarantined)),
        }
    }

    async fn get_session_budget(
        &self,
        request: Request<v1::GetSessionBudgetRequest>,
    ) -> Result<Response<v1::GetSessionBudgetResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let id = session_id(&request.get_ref().session_id)?;
        let root = self.0.store.get_session(tenant, &id).await.map_err(from_store)?.root_id;
        let budget = Some(budget::read(&self.0, tenant, &root).await?);
        Ok(Response::new(v1::GetSessionBudgetResponse { budget }))
    }

    async fn set_session_budget(
        &self,
        request: Request<v1::SetSessionBudgetRequest>,
    ) -> Result<Response<v1::SetSessionBudgetResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let id = session_id(&request.get_ref().session_id)?;
        let max = budget::amount(request.get_ref().max_usd_picos)?;
        let budget = Some(budget::set(&self.0, &principal, &id, max).await?);
        Ok(Response::new(v1::SetSessionBudgetResponse { budget }))
    }

    async fn get_session_diff(
        &self,
        request: Request<v1::GetSessionDiffRequest>,
    ) -> Result<Response<v1::GetSessionDiffResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let id = session_id(&request.get_ref().session_id)?;
        let session = self.0.store.get_session(tenant, &id).await.map_err(from_store)?;
        if !request.get_ref().message_id.is_empty() {
            let message = super::id(&request.get_ref().message_id, "message_not_found", "message")?;
            let entry = self.0.store.get_message(tenant, &id, &message).await.map_err(from_store)?;
            return Ok(Response::new(to_wire::message_diff(&entry.message)));
        }
        let request = v1::DiffWorkspaceRequest {
            tenant_id: tenant.to_string(),
            session_id: id.to_string(),
            bytes_max: u32::try_from(limits::DIFF_BYTES_MAX).unwrap_or(u32::MAX),
            workspace_session_id: session.root_id.to_string(),
        };
        let diff = self.0.sandbox.clone().diff_workspace(request).await.map_err(from_sandbox)?.into_inner();
        let files = diff.files.into_iter().map(|file| v1::FileStat {
            path: file.path,
            additions: file.additions,
            deletions: file.deletions,
        });
        let (patch, truncated) = (diff.patch, diff.truncated);
        Ok(Response::new(v1::GetSessionDiffResponse { patch, truncated, files: files.collect() }))
    }

    async fn get_tool_output(
        &self,
        request: Request<v1::GetToolOutputRequest>,
    ) -> Result<Response<v1::GetToolOutputResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let request = request.into_inner();
        let id = session_id(&request.session_id)?;
        self.0.store.get_head(tenant, &id).await.map_err(from_store)?;
        let (tenant_id, session_id, path) = (tenant.to_string(), id.to_string(), request.path);
        let asked = v1::GetOutputRequest { tenant_id, session_id, path };
        let output = self.0.sandbox.clone().get_output(asked).await.map_err(from_sandbox)?.into_inner();
        Ok(Response::new(v1::GetToolOutputResponse { data: output.data }))
    }

    async fn revert_session(
        &self,
        request: Request<v1::RevertSessionRequest>,
    ) -> Result<Response<v1::RevertSessionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.get_ref();
        let session = session_id(&request.session_id)?;
        let message = id(&request.message_id, "message_not_found", "message")?;
        let part = match request.part_id.as_str() {
            "" => None,
            part => Some(id(part, "part_not_found", "part")?),
        };
        let session = history::revert(&self.0, &principal, &session, (message, part)).await?;
        Ok(Response::new(v1::RevertSessionResponse { session: Some(to_wire::session(session)) }))
    }

    async fn unrevert_session(
        &self,
        request: Request<v1::UnrevertSessionRequest>,
    ) -> Result<Response<v1::UnrevertSessionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let session = session_id(&request.get_ref().session_id)?;
        let session = history::unrevert(&self.0, &principal, &session).await?;
        Ok(Response::new(v1::UnrevertSessionResponse { session: Some(to_wire::session(session)) }))
    }

    async fn fork_session(
        &self,
        request: Request<v1::ForkSessionRequest>,
    ) -> Result<Response<v1::ForkSessionResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.get_ref();
        intake::check_key(&request.idempotency_key)?;
        let before = match request.message_id.as_str() {
            "" => None,
            message => Some(id(message, "message_not_found", "message")?),
        };
        let session = session_id(&request.session_id)?;
        let key = request.idempotency_key.clone();
        let asked = history::fork::Asked { session, before, files: request.files(), key };
        let session = history::fork::fork(&self.0, &principal, &asked).await?;
        Ok(Response::new(v1::ForkSessionResponse { session: Some(to_wire::session(session)) }))
    }

    async fn export_session(
        &self,
        request: Request<v1::ExportSessionRequest>,
    ) -> Result<Response<Self::ExportSessionStream>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let id = session_id(&request.get_ref().session_id)?;
        let session = self.0.store.get_session(tenant, &id).await.map_err(from_store)?;
        let request = v1::ExportWorkspaceRequest {
            tenant_id: tenant.to_string(),
            session_id: id.to_string(),
            commit_message: session.info.title,
            workspace_session_id: session.root_id.to_string(),
            ..Default::default()
        };
        let mut pieces =
            self.0.sandbox.clone().export_workspace(request).await.map_err(from_sandbox)?.into_inner();
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        tokio::spawn(async move {
            loop {
                let piece = match pieces.message().await {
                    Ok(None) => return,
                    Ok(Some(piece)) => Ok(v1::ExportSessionResponse {
                        data: piece.data,
                        commit: piece.commit,
                        base_commit: piece.base_commit,
                    }),
                    Err(status) => Err(from_sandbox(status)),
                };
                let is_error = piece.is_err();
                if sender.send(piece).await.is_err() || is_error {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

impl Service {
    /// Checks an agent for later prompts of a session.
    ///
    /// # Errors
    /// `session_not_found`, `agent_unknown`, `store_unavailable`.
    async fn agent(&self, tenant: TenantId, session: &SessionId, agent: &str) -> Result<String, Status> {
        let known = self.0.store.get_session(tenant, session).await.map_err(from_store)?;
        let place = Place { tenant, project: &known.info.project_id, source: &known.source };
        agents::check(&self.0, place, std::iter::once((agent, Mode::Primary))).await?;
        Ok(if agent.is_empty() { DEFAULT_AGENT.to_owned() } else { agent.to_owned() })
    }

    /// Removes what a deleted session left in the sandbox. Its rows are gone: a loop that still runs is fenced by that.
    /// Were the sandbox away, the files stay until its own clean-up, and nothing can reach them.
    async fn close_workspace(&self, tenant: TenantId, id: &SessionId, epoch: u64) {
        let fence = v1::Fence {
            tenant_id: tenant.to_string(),
            session_id: id.to_string(),
            epoch,
            workspace_session_id: String::new(),
        };
        let request = v1::CloseWorkspaceRequest { fence: Some(fence) };
        if let Err(status) = self.0.sandbox.clone().close_workspace(request).await {
            tracing::warn!(session.id = %id, "a workspace was not removed: {}", status.message());
        }
    }
}

/// The id that a caller gives a new session.
///
/// # Errors
/// `session_id_invalid`.
fn named(text: &str, key: &str) -> Result<Option<SessionId>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let id = text.parse::<SessionId>().ok().filter(|_| text.len() == SESSION_ID_BYTES);
    if !key.is_empty() {
        return Err(invalid("session_id_invalid", "a session has an id or an idempotency key, not both"));
    }
    id.map(Some)
        .ok_or_else(|| invalid("session_id_invalid", "the id of a session is ses_ and 26 letters and digits"))
}

/// Pieces of an export on their way to the client.
const PIECES_AHEAD: usize = 4;

/// Where a list of sessions goes on that is ordered by `at`: see `Store::list_sessions` and `Store::list_children`.
pub(crate) fn place(at: Timestamp, session: &Session) -> String {
    format!("{}.{}", at.0, session.info.id)
}

/// Whether [`place`] may have made it.
pub(crate) fn is_cursor(text: &str) -> bool {
    let parts = text.split_once('.');
    parts.is_some_and(|(ms, id)| ms.parse::<i64>().is_ok() && id.parse::<SessionId>().is_ok())
}
