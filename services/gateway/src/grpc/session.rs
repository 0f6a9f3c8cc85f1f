//! `SessionService`: conversations and their workspaces.

use super::{
    convert,
    service::{Service, principal},
    status::{id, optional_id, respond, to_status},
};
use crate::{
    app::{
        history::{
            fork::{self, ForkFiles, ForkRequest},
            restart,
            revert::{self, RevertPoint},
        },
        projects::{manage, worktrees},
        sessions::{
            abort::{self, AbortOutcome},
            budget,
            change::{self, SessionChange},
            create::{self, SessionForm, SessionRequest},
            egress,
            output::{self, ExportPiece},
            push::{self, PushRequest},
            read,
        },
    },
    errors::{entity::Entity, error::Error, invalid::Invalid},
};
use domain::ids::ProjectId;
use futures::{StreamExt as _, stream::Map};
use rpc::{
    push::CarriedPush,
    v1::{self, session_service_server::SessionService},
};
use store::session::sessions::Filter;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

type Exported = Result<ExportPiece, Error>;

#[tonic::async_trait]
impl SessionService for Service {
    type ExportSessionStream =
        Map<ReceiverStream<Exported>, fn(Exported) -> Result<v1::ExportSessionResponse, Status>>;

    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::CreateSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let (class, on_ask) = (convert::from_class(request.class()), convert::from_on_ask(request.on_ask()));
        let (model, rules) =
            (convert::from_model(request.model), convert::from_rules(request.permission_rules)?);
        if request.validate_only {
            let form = SessionForm {
                id: &request.id,
                idempotency_key: &request.idempotency_key,
                title: &request.title,
                model: model.as_ref(),
                rules: &rules,
                budget_usd_picos: request.budget_usd_picos,
            };
            let checked = create::check(&self.0, &principal, form);
            return respond(checked, |()| v1::CreateSessionResponse { session: None });
        }
        let project = id(&request.project_id, Entity::Project)?;
        let worktree = match request.worktree.as_str() {
            "" => None,
            directory => {
                Some(worktrees::get(&self.0, &principal, &project, directory).await.map_err(to_status)?)
            }
        };
        let request = SessionRequest {
            project,
            worktree,
            id: request.id,
            idempotency_key: request.idempotency_key,
            title: request.title,
            agent: request.agent,
            model,
            variant: String::new(),
            source: convert::from_source(request.source, &request.remote),
            class,
            rules,
            budget_usd_picos: request.budget_usd_picos,
            on_ask,
            tries_environment: request.tries_environment,
        };
        respond(create::create(&self.0, &principal, request).await, |session| v1::CreateSessionResponse {
            session: Some(convert::session(session)),
        })
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().session_id, Entity::Session)?;
        respond(read::explain(&self.0, &principal, &id).await, |view| v1::GetSessionResponse {
            session: Some(convert::session_view(view)),
        })
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let project = optional_id::<ProjectId>(&request.project_id, Entity::Project)?;
        if let Some(project) = &project {
            manage::get(&self.0, &principal, project).await.map_err(to_status)?;
        }
        let (archived, waiting) = (request.include_archived, request.waiting_only);
        let filter = Filter { area: project.map(Into::into), archived, waiting, ..Filter::default() };
        let page = convert::page(request.page);
        respond(read::list(&self.0, &principal, &filter, page).await, |list| v1::ListSessionsResponse {
            sessions: list.entries.into_iter().map(convert::session_view).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn update_session(
        &self,
        request: Request<v1::UpdateSessionRequest>,
    ) -> Result<Response<v1::UpdateSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = id(&request.session_id, Entity::Session)?;
        let change = session_change(request)?;
        respond(change::update(&self.0, &principal, &id, change).await, |session| v1::UpdateSessionResponse {
            session: Some(convert::session(session)),
        })
    }

    async fn delete_session(
        &self,
        request: Request<v1::DeleteSessionRequest>,
    ) -> Result<Response<v1::DeleteSessionResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().session_id, Entity::Session)?;
        respond(change::delete(&self.0, &principal, &id).await, |()| v1::DeleteSessionResponse {})
    }

    async fn list_session_children(
        &self,
        request: Request<v1::ListSessionChildrenRequest>,
    ) -> Result<Response<v1::ListSessionChildrenResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let parent = id(&request.session_id, Entity::Session)?;
        let page = convert::page(request.page);
        respond(read::list_children(&self.0, &principal, &parent, page).await, |list| {
            v1::ListSessionChildrenResponse {
                sessions: list.entries.into_iter().map(convert::session).collect(),
                next_cursor: list.next.unwrap_or_default(),
            }
        })
    }

    async fn abort_session(
        &self,
        request: Request<v1::AbortSessionRequest>,
    ) -> Result<Response<v1::AbortSessionResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().session_id, Entity::Session)?;
        respond(abort::abort(&self.0, &principal, &id).await, |outcome| v1::AbortSessionResponse {
            was_active: outcome == AbortOutcome::TurnAborted,
        })
    }

    async fn get_session_budget(
        &self,
        request: Request<v1::GetSessionBudgetRequest>,
    ) -> Result<Response<v1::GetSessionBudgetResponse>, Status> {
        let principal = principal(&request)?;
        let id = id(&request.get_ref().session_id, Entity::Session)?;
        respond(budget::get(&self.0, &principal, &id).await, |budget| v1::GetSessionBudgetResponse {
            budget: Some(convert::budget(budget)),
        })
    }

    async fn set_session_budget(
        &self,
        request: Request<v1::SetSessionBudgetRequest>,
    ) -> Result<Response<v1::SetSessionBudgetResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.get_ref();
        let id = id(&request.session_id, Entity::Session)?;
        respond(budget::set(&self.0, &principal, &id, request.max_usd_picos).await, |budget| {
            v1::SetSessionBudgetResponse { budget: Some(convert::budget(budget)) }
        })
    }

    async fn get_session_diff(
        &self,
        request: Request<v1::GetSessionDiffRequest>,
    ) -> Result<Response<v1::GetSessionDiffResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.get_ref();
        let session = id(&request.session_id, Entity::Session)?;
        match optional_id(&request.message_id, Entity::Message)? {
            None => respond(output::diff_session(&self.0, &principal, &session).await, convert::diff),
            Some(message) => {
                read::check(&self.0, &principal, &session).await.map_err(to_status)?;
                let diffs = output::diff_message(&self.0, &principal, &session, &message).await;
                respond(diffs, |diffs| convert::message_diff(&diffs))
            }
        }
    }

    async fn get_tool_output(
        &self,
        request: Request<v1::GetToolOutputRequest>,
    ) -> Result<Response<v1::GetToolOutputResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = id(&request.session_id, Entity::Session)?;
        respond(output::get_tool_output(&self.0, &principal, &id, request.path).await, |data| {
            v1::GetToolOutputResponse { data }
        })
    }

    async fn list_egress(
        &self,
        request: Request<v1::ListEgressRequest>,
    ) -> Result<Response<v1::ListEgressResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListEgressRequest { session_id, page } = request.into_inner();
        let session = id(&session_id, Entity::Session)?;
        respond(egress::list(&self.0, &principal, &session, convert::page(page)).await, |log| {
            v1::ListEgressResponse {
                accesses: log.list.entries.into_iter().map(|entry| convert::egress(entry.access)).collect(),
                next_cursor: log.list.next.unwrap_or_default(),
                newest_missing: log.newest_missing,
            }
        })
    }

    async fn revert_session(
        &self,
        request: Request<v1::RevertSessionRequest>,
    ) -> Result<Response<v1::RevertSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.get_ref();
        let session = id(&request.session_id, Entity::Session)?;
        let message = id(&request.message_id, Entity::Message)?;
        let point = RevertPoint { message, part: optional_id(&request.part_id, Entity::Part)? };
        respond(revert::revert(&self.0, &principal, &session, point).await, |session| {
            v1::RevertSessionResponse { session: Some(convert::session(session)) }
        })
    }

    async fn unrevert_session(
        &self,
        request: Request<v1::UnrevertSessionRequest>,
    ) -> Result<Response<v1::UnrevertSessionResponse>, Status> {
        let principal = principal(&request)?;
        let session = id(&request.get_ref().session_id, Entity::Session)?;
        respond(revert::unrevert(&self.0, &principal, &session).await, |session| {
            v1::UnrevertSessionResponse { session: Some(convert::session(session)) }
        })
    }

    async fn restart_workspace(
        &self,
        request: Request<v1::RestartWorkspaceRequest>,
    ) -> Result<Response<v1::RestartWorkspaceResponse>, Status> {
        let principal = principal(&request)?;
        let session = id(&request.get_ref().session_id, Entity::Session)?;
        respond(restart::restart_workspace(&self.0, &principal, &session).await, |()| {
            v1::RestartWorkspaceResponse {}
        })
    }

    async fn fork_session(
        &self,
        request: Request<v1::ForkSessionRequest>,
    ) -> Result<Response<v1::ForkSessionResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let files = match request.files() {
            v1::ForkFiles::Unspecified => ForkFiles::Default,
            v1::ForkFiles::AtMessage => ForkFiles::AtMessage,
            v1::ForkFiles::Now => ForkFiles::Now,
        };
        let request = ForkRequest {
            before: optional_id(&request.message_id, Entity::Message)?,
            session: id(&request.session_id, Entity::Session)?,
            files,
            idempotency_key: request.idempotency_key,
        };
        respond(fork::fork(&self.0, &principal, &request).await, |session| v1::ForkSessionResponse {
            session: Some(convert::session(session)),
        })
    }

    async fn export_session(
        &self,
        request: Request<v1::ExportSessionRequest>,
    ) -> Result<Response<Self::ExportSessionStream>, Status> {
        let principal = principal(&request)?;
        let v1::ExportSessionRequest { session_id, squash } = request.into_inner();
        let id = id(&session_id, Entity::Session)?;
        let pieces = output::export(&self.0, &principal, &id, squash).await.map_err(to_status)?;
        let convert: fn(_) -> _ = |piece: Exported| match piece {
            Ok(ExportPiece { data, commit, base_commit, left_out }) => {
                Ok(v1::ExportSessionResponse { data, commit, base_commit, left_out })
            }
            Err(error) => Err(to_status(error)),
        };
        Ok(Response::new(ReceiverStream::new(pieces).map(convert)))
    }

    async fn push_session(
        &self,
        request: Request<v1::PushSessionRequest>,
    ) -> Result<Response<v1::PushSessionResponse>, Status> {
        let principal = principal(&request)?;
        let v1::PushSessionRequest { session_id, branch, message, dry_run, squash } = request.into_inner();
        let session = id(&session_id, Entity::Session)?;
        let request = PushRequest { session, branch, message, is_preview: dry_run, squash };
        // Boxed because the future is large and rarely needed.
        let pushed = Box::pin(push::push(&self.0, &principal, &request)).await;
        respond(pushed, |CarriedPush { answer, left_out }| {
            let v1::PushResponse { url, branch, commit, commits, files, remote_message, changes } = answer;
            v1::PushSessionResponse { url, branch, commit, commits, files, remote_message, changes, left_out }
        })
    }
}

/// Reads the fields that the update mask names.
fn session_change(request: v1::UpdateSessionRequest) -> Result<SessionChange, Status> {
    let paths = request.update_mask.unwrap_or_default().paths;
    if paths.is_empty() {
        let message = "update_mask is empty; it can name title, archived, agent and model";
        return Err(to_status(Invalid::MaskEmpty.because(message)));
    }
    let mut change = SessionChange::default();
    for path in paths {
        match path.as_str() {
            "title" => change.title = Some(request.title.clone()),
            "archived" => change.archived = Some(request.archived),
            "agent" => change.agent = Some(request.agent.clone()),
            "model" => change.model = convert::from_model(request.model.clone()),
            _ => {
                let message =
                    format!("cannot change {path:?}; title, archived, agent and model can be changed");
                return Err(to_status(Invalid::FieldUnknown.because(message)));
            }
        }
    }
    Ok(change)
}
