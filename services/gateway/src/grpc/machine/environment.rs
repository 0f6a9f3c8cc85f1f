//! `EnvironmentService`: what the setups of projects made, and the environments that repositories propose.

use crate::{
    app::environments::{self, Proposal},
    errors::entity::Entity,
    grpc::{
        service::{Service, principal},
        status::{id, optional_id, respond},
    },
};
use rpc::v1::{self, environment_service_server::EnvironmentService};
use store::people::environments::ProposedEnvironment;
use tonic::{Request, Response, Status};

fn proposed(proposal: Proposal) -> v1::ProposedEnvironment {
    let Proposal { environment, push_secrets } = proposal;
    let ProposedEnvironment { digest, file, document, unused, session, proposed_at, decision } = environment;
    let verdict = match &decision {
        None => v1::EnvironmentVerdict::Unspecified,
        Some(decision) if decision.is_allowed => v1::EnvironmentVerdict::Allowed,
        Some(_) => v1::EnvironmentVerdict::Denied,
    };
    let (decided_by, decided_at_ms) = decision.map(|it| (it.by, it.at.0)).unwrap_or_default();
    v1::ProposedEnvironment {
        digest,
        file,
        document,
        unused,
        session_id: session.to_string(),
        proposed_at_ms: proposed_at.0,
        verdict: verdict.into(),
        decided_by,
        decided_at_ms,
        push_secrets,
    }
}

#[tonic::async_trait]
impl EnvironmentService for Service {
    async fn list_environments(
        &self,
        request: Request<v1::ListEnvironmentsRequest>,
    ) -> Result<Response<v1::ListEnvironmentsResponse>, Status> {
        let principal = principal(&request)?;
        let project = optional_id(&request.into_inner().project_id, Entity::Project)?;
        respond(environments::list(&self.0, &principal, project.as_ref()).await, |environments| {
            v1::ListEnvironmentsResponse { environments }
        })
    }

    async fn get_environment_log(
        &self,
        request: Request<v1::GetEnvironmentLogRequest>,
    ) -> Result<Response<v1::GetEnvironmentLogResponse>, Status> {
        let principal = principal(&request)?;
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
        let principal = principal(&request)?;
        let key = request.into_inner().key;
        respond(environments::remove(&self.0, &principal, key).await, |()| v1::RemoveEnvironmentResponse {})
    }

    async fn list_proposed_environments(
        &self,
        request: Request<v1::ListProposedEnvironmentsRequest>,
    ) -> Result<Response<v1::ListProposedEnvironmentsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let project = id(&request.project_id, Entity::Project)?;
        let listed = environments::list_proposed(&self.0, &principal, &project, &request.digest).await;
        respond(listed, |environments| {
            let environments = environments.into_iter().map(proposed).collect();
            v1::ListProposedEnvironmentsResponse { environments }
        })
    }

    async fn get_session_environment(
        &self,
        request: Request<v1::GetSessionEnvironmentRequest>,
    ) -> Result<Response<v1::GetSessionEnvironmentResponse>, Status> {
        let principal = principal(&request)?;
        let session = id(&request.into_inner().session_id, Entity::Session)?;
        respond(environments::find_of_session(&self.0, &principal, &session).await, |found| {
            v1::GetSessionEnvironmentResponse { environment: found.map(proposed) }
        })
    }

    async fn decide_environment(
        &self,
        request: Request<v1::DecideEnvironmentRequest>,
    ) -> Result<Response<v1::DecideEnvironmentResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let project = id(&request.project_id, Entity::Project)?;
        let decided =
            environments::decide(&self.0, &principal, &project, &request.digest, request.verdict()).await;
        respond(decided, |environment| v1::DecideEnvironmentResponse {
            environment: Some(proposed(environment)),
        })
    }
}
