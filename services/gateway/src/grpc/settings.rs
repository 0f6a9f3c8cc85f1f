//! `SettingsService`: what tenants and projects settle for their sessions, and what counts in one.

use super::{Service, from_sandbox, from_store, id, session_id};
use domain::{
    ids::{ProjectId, SessionId, TenantId},
    level::Level,
};
use rpc::{
    status::{error, invalid},
    v1::{self, settings_service_server::SettingsService},
};
use settings::{repository::UnclearRestriction, standing};
use store::{people::settings::StoredSettings, session::row::Session, tenant::projects::Project};
use tonic::{Code, Request, Response, Status};

#[tonic::async_trait]
impl SettingsService for Service {
    async fn get_settings(
        &self,
        request: Request<v1::GetSettingsRequest>,
    ) -> Result<Response<v1::GetSettingsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let project = self.project(tenant, &request.get_ref().project_id).await?;
        let project = project.map(|project| project.id);
        let level = level(project.as_ref());
        let stored = self.0.store.list_settings(tenant, project.as_ref()).await.map_err(from_store)?;
        let settings = stored.into_iter().find(|stored| stored.level == level).map(to_wire);
        Ok(Response::new(v1::GetSettingsResponse { settings }))
    }

    async fn set_settings(
        &self,
        request: Request<v1::SetSettingsRequest>,
    ) -> Result<Response<v1::SetSettingsResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let (tenant, request) = (principal.tenant, request.into_inner());
        let project = self.project(tenant, &request.project_id).await?;
        let changed = || match &project {
            Some(project) => self.0.tell_disposed(tenant, project),
            None => self.0.tell_all_disposed(tenant),
        };
        let id = project.as_ref().map(|project| &project.id);
        if request.document.trim().is_empty() {
            self.0.store.delete_settings(tenant, id).await.map_err(from_store)?;
            changed();
            return Ok(Response::new(v1::SetSettingsResponse { settings: None }));
        }
        standing::stored(level(id), &request.document)
            .map_err(|problems| invalid("settings_invalid", problems.to_string()))?;
        let stored = self.0.store.put_settings(tenant, id, &request.document, &principal.name).await;
        let settings = Some(to_wire(stored.map_err(from_store)?));
        changed();
        Ok(Response::new(v1::SetSettingsResponse { settings }))
    }

    async fn explain_settings(
        &self,
        request: Request<v1::ExplainSettingsRequest>,
    ) -> Result<Response<v1::ExplainSettingsResponse>, Status> {
        let tenant = self.0.principal(&request).await?.tenant;
        let id = session_id(&request.get_ref().session_id)?;
        let session = self.0.store.get_session(tenant, &id).await.map_err(from_store)?;
        let stored = self.0.store.list_settings_of(tenant, &id).await.map_err(from_store)?;
        let above = self.0.above(&stored).map_err(|problems| {
            // They were checked when they came: another version of us took them.
            error(Code::Internal, "settings_unreadable", problems.to_string())
        })?;
        let files = self.configuration(tenant, &id, &session).await?;
        let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        Ok(Response::new(match settings::repository::configure(&above, &files) {
            Ok(configured) => configured.into(),
            Err(UnclearRestriction(problems)) => {
                v1::ExplainSettingsResponse { problems, is_refused: true, ..Default::default() }
            }
        }))
    }
}

impl Service {
    /// The project that a request names, if it names one.
    ///
    /// # Errors
    /// `project_not_found`, `store_unavailable`.
    async fn project(&self, tenant: TenantId, text: &str) -> Result<Option<Project>, Status> {
        if text.is_empty() {
            return Ok(None);
        }
        let id = id(text, "project_not_found", "project")?;
        Ok(Some(self.0.store.get_project(tenant, &id).await.map_err(from_store)?))
    }

    /// The files of settings of the commit that a session started from; none before its workspace is open.
    ///
    /// # Errors
    /// `sandbox_unavailable`.
    async fn configuration(
        &self,
        tenant: TenantId,
        id: &SessionId,
        session: &Session,
    ) -> Result<Vec<v1::GuidanceFile>, Status> {
        let fence = v1::Fence {
            tenant_id: tenant.to_string(),
            session_id: id.to_string(),
            epoch: 0,
            workspace_session_id: session.root_id.to_string(),
        };
        let request = v1::ReadGuidanceRequest { fence: Some(fence), ..Default::default() };
        match self.0.sandbox.clone().read_guidance(request).await {
            Ok(found) => Ok(found.into_inner().configuration),
            Err(status) if rpc::status::code_of(&status).as_deref() == Some("workspace_missing") => {
                Ok(vec![])
            }
            Err(status) => Err(from_sandbox(status)),
        }
    }
}

fn level(project: Option<&ProjectId>) -> Level {
    project.map_or(Level::Tenant, |_| Level::Project)
}

fn to_wire(stored: StoredSettings) -> v1::Settings {
    v1::Settings { document: stored.document, changed_by: stored.by, changed_at_ms: stored.at.0 }
}
