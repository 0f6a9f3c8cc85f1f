//! `GithubService`: the App of the deployment, the installations of tenants, and what GitHub has told us.

use super::{
    convert,
    service::{Service, principal},
    status::{id, respond},
};
use crate::{
    app::forge::{
        deliveries,
        installations::{self, AppSetup, BoundInstallation, ForgeStatus},
    },
    errors::entity::Entity,
};
use chassis::secret::SecretBytes;
use rpc::v1::{self, github_service_server::GithubService};
use store::{control::deliveries::DeliveryRecord, tenant::forge::Installation};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl GithubService for Service {
    async fn setup_github(
        &self,
        request: Request<v1::SetupGithubRequest>,
    ) -> Result<Response<v1::SetupGithubResponse>, Status> {
        let principal = principal(&request)?;
        let mut request = request.into_inner();
        let take = |bytes: &mut Vec<u8>| SecretBytes::of(std::mem::take(bytes));
        let setup = AppSetup {
            app_id: request.app_id,
            private_key: take(&mut request.private_key),
            webhook_secret: take(&mut request.webhook_secret),
            api_url: std::mem::take(&mut request.api_url),
            web_url: std::mem::take(&mut request.web_url),
        };
        respond(installations::set_up(&self.0, &principal, setup).await, |found| v1::SetupGithubResponse {
            app: Some(app(found)),
        })
    }

    async fn get_github(
        &self,
        request: Request<v1::GetGithubRequest>,
    ) -> Result<Response<v1::GetGithubResponse>, Status> {
        let principal = principal(&request)?;
        respond(installations::status(&self.0, &principal).await, |status| {
            let ForgeStatus { app: found, installations } = status;
            v1::GetGithubResponse {
                app: found.map(app),
                installations: installations.into_iter().map(installation).collect(),
            }
        })
    }

    async fn bind_installation(
        &self,
        request: Request<v1::BindInstallationRequest>,
    ) -> Result<Response<v1::BindInstallationResponse>, Status> {
        let principal = principal(&request)?;
        let v1::BindInstallationRequest { installation_id, tenant_id } = request.into_inner();
        let tenant = id(&tenant_id, Entity::Tenant)?;
        respond(installations::bind(&self.0, &principal, tenant, installation_id).await, |bound| {
            let BoundInstallation { installation: found, missing_settings } = bound;
            v1::BindInstallationResponse { installation: Some(installation(found)), missing_settings }
        })
    }

    async fn list_deliveries(
        &self,
        request: Request<v1::ListDeliveriesRequest>,
    ) -> Result<Response<v1::ListDeliveriesResponse>, Status> {
        let principal = principal(&request)?;
        let page = convert::page(request.into_inner().page);
        respond(deliveries::list(&self.0, &principal, page).await, |list| v1::ListDeliveriesResponse {
            deliveries: list.entries.into_iter().map(delivery).collect(),
            next_cursor: list.next.unwrap_or_default(),
        })
    }

    async fn replay_delivery(
        &self,
        request: Request<v1::ReplayDeliveryRequest>,
    ) -> Result<Response<v1::ReplayDeliveryResponse>, Status> {
        let principal = principal(&request)?;
        let guid = request.into_inner().guid;
        respond(deliveries::replay(&self.0, &principal, &guid).await, |()| v1::ReplayDeliveryResponse {})
    }
}

fn app(app: v1::ForgeApp) -> v1::GithubApp {
    let v1::ForgeApp { app_id, slug, api_url, web_url } = app;
    v1::GithubApp { app_id, slug, api_url, web_url }
}

fn installation(installation: Installation) -> v1::GithubInstallation {
    let Installation { id, account, bound_at, bound_by } = installation;
    v1::GithubInstallation { id, account, bound_at_ms: bound_at.0, bound_by }
}

fn delivery(record: DeliveryRecord) -> v1::GithubDelivery {
    let DeliveryRecord { guid, event, installation, received_at, state, note, attempts, .. } = record;
    v1::GithubDelivery {
        guid,
        event,
        installation_id: installation.and_then(|id| u64::try_from(id).ok()).unwrap_or_default(),
        received_at_ms: received_at.0,
        state: state.as_str().to_owned(),
        note,
        attempts: u32::try_from(attempts).unwrap_or_default(),
    }
}
