//! `SettingsService`: the settings of tenants and projects, and the effective settings of a session.

use super::{
    service::{Service, principal},
    status::{id, optional_id, respond},
};
use crate::{app::settings, errors::entity::Entity};
use ::settings::repository::UnclearRestriction;
use rpc::v1::{self, settings_service_server::SettingsService};
use store::tenant::settings::StoredSettings;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl SettingsService for Service {
    async fn get_settings(
        &self,
        request: Request<v1::GetSettingsRequest>,
    ) -> Result<Response<v1::GetSettingsResponse>, Status> {
        let principal = principal(&request)?;
        let project = optional_id(&request.get_ref().project_id, Entity::Project)?;
        respond(settings::get(&self.0, &principal, project.as_ref()).await, |stored| {
            v1::GetSettingsResponse { settings: stored.map(to_wire) }
        })
    }

    async fn set_settings(
        &self,
        request: Request<v1::SetSettingsRequest>,
    ) -> Result<Response<v1::SetSettingsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let project = optional_id(&request.project_id, Entity::Project)?;
        let stored = settings::set(&self.0, &principal, project.as_ref(), &request.document).await;
        respond(stored, |stored| v1::SetSettingsResponse { settings: stored.map(to_wire) })
    }

    async fn explain_settings(
        &self,
        request: Request<v1::ExplainSettingsRequest>,
    ) -> Result<Response<v1::ExplainSettingsResponse>, Status> {
        let principal = principal(&request)?;
        let session = id(&request.get_ref().session_id, Entity::Session)?;
        respond(settings::explain(&self.0, &principal, &session).await, |explained| match explained {
            Ok(configured) => configured.into(),
            Err(UnclearRestriction(problems)) => {
                v1::ExplainSettingsResponse { problems, is_refused: true, ..Default::default() }
            }
        })
    }
}

fn to_wire(stored: StoredSettings) -> v1::Settings {
    v1::Settings { document: stored.document, changed_by: stored.by, changed_at_ms: stored.at.0 }
}
