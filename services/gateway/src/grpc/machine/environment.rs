//! `EnvironmentService`: what the setups of projects made.

use crate::{
    app::environments,
    ground::entity::Entity,
    grpc::{
        service::Service,
        status::{optional_id, respond},
    },
};
use rpc::v1::{self, environment_service_server::EnvironmentService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl EnvironmentService for Service {
    async fn list_environments(
        &self,
        request: Request<v1::ListEnvironmentsRequest>,
    ) -> Result<Response<v1::ListEnvironmentsResponse>, Status> {
        let principal = self.principal(&request).await?;
        let project = optional_id(&request.into_inner().project_id, Entity::Project)?;
        respond(environments::list(&self.0, &principal, project.as_ref()).await, |environments| {
            v1::ListEnvironmentsResponse { environments }
        })
    }

    async fn get_environment_log(
        &self,
        request: Request<v1::GetEnvironmentLogRequest>,
    ) -> Result<Response<v1::GetEnvironmentLogResponse>, Status> {
        let principal = self.principal(&request).await?;
        let key = request.into_inner().key;
        respond(environments::log(&self.0, &principal, key).await, |read| {
            let v1::ReadEnvironmentLogResponse { environment, log } = read;
            v1::GetEnvironmentLogResponse { environment, log }
        })
    }

    async fn remove_environment(
        &self,
        request: Request<v1::RemoveEnvironmentRequest>,
    ) -> Result<Response<v1::RemoveEnvironmentResponse>, Status> {
        let principal = self.principal(&request).await?;
        let key = request.into_inner().key;
        respond(environments::remove(&self.0, &principal, key).await, |()| v1::RemoveEnvironmentResponse {})
    }
}
