//! `SecretService`: secrets of a tenant and its projects, without their values.

use super::{
    convert,
    service::{Service, principal},
    status::{optional_id, respond},
};
use crate::{
    app::secrets::{self, SecretContent, SecretTarget},
    errors::entity::Entity,
};
use chassis::secret::SecretBytes;
use rpc::v1::{self, secret_service_server::SecretService};
use store::tenant::secrets::Secret;
use tonic::{Request, Response, Status};

fn secret(secret: Secret) -> v1::Secret {
    v1::Secret {
        name: secret.address.name.to_string(),
        project_id: secret.address.scope().to_owned(),
        version: secret.version,
        created_at_ms: secret.created_at.0,
        created_by: secret.created_by,
        last_used_at_ms: secret.last_used_at.map_or(0, |at| at.0),
        urls: secret.urls,
    }
}

fn target(name: &str, project_id: &str) -> Result<SecretTarget, Status> {
    Ok(SecretTarget { project: optional_id(project_id, Entity::Project)?, name: name.to_owned() })
}

#[tonic::async_trait]
impl SecretService for Service {
    async fn set_secret(
        &self,
        request: Request<v1::SetSecretRequest>,
    ) -> Result<Response<v1::SetSecretResponse>, Status> {
        let principal = principal(&request)?;
        let mut request = request.into_inner();
        let value = SecretBytes::of(std::mem::take(&mut request.value));
        let target = target(&request.name, &request.project_id)?;
        let content = SecretContent { value, urls: std::mem::take(&mut request.urls) };
        respond(secrets::set(&self.0, &principal, target, content).await, |stored| v1::SetSecretResponse {
            secret: Some(secret(stored)),
        })
    }

    async fn list_secrets(
        &self,
        request: Request<v1::ListSecretsRequest>,
    ) -> Result<Response<v1::ListSecretsResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ListSecretsRequest { project_id, page } = request.into_inner();
        let (project, page) = (optional_id(&project_id, Entity::Project)?, convert::page(page));
        respond(secrets::list(&self.0, &principal, project.as_ref(), page).await, |list| {
            v1::ListSecretsResponse {
                secrets: list.entries.into_iter().map(secret).collect(),
                next_cursor: list.next.unwrap_or_default(),
            }
        })
    }

    async fn delete_secret(
        &self,
        request: Request<v1::DeleteSecretRequest>,
    ) -> Result<Response<v1::DeleteSecretResponse>, Status> {
        let principal = principal(&request)?;
        let v1::DeleteSecretRequest { name, project_id } = request.into_inner();
        let target = target(&name, &project_id)?;
        respond(secrets::delete(&self.0, &principal, target).await, |()| v1::DeleteSecretResponse {})
    }
}
