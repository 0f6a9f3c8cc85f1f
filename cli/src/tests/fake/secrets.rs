//! The secrets of the fake gateway: one of the tenant and one of a project, whatever is set and deleted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Answer, Fake};
use rpc::v1::{secret_service_server::SecretService, *};
use tonic::{Request, Response};

#[tonic::async_trait]
impl SecretService for Fake {
    async fn set_secret(&self, request: Request<SetSecretRequest>) -> Answer<SetSecretResponse> {
        let mut request = request.into_inner();
        let mut state = self.0.lock().unwrap();
        state.secret = std::mem::take(&mut request.value);
        let (name, project_id) = (request.name.clone(), request.project_id.clone());
        let urls = std::mem::take(&mut request.urls);
        let servers = if urls.is_empty() { String::new() } else { format!(" for {}", urls.join(" ")) };
        state.orders.push(format!("set secret {name} of {project_id:?}{servers}"));
        let secret = Secret { name, project_id, version: 3, urls, ..Secret::default() };
        Ok(Response::new(SetSecretResponse { secret: Some(secret) }))
    }

    async fn list_secrets(&self, request: Request<ListSecretsRequest>) -> Answer<ListSecretsResponse> {
        let ListSecretsRequest { project_id, .. } = request.into_inner();
        self.0.lock().unwrap().orders.push(format!("list secrets of {project_id:?}"));
        let secret = |name: &str, project_id: &str| Secret {
            name: name.to_owned(),
            project_id: project_id.to_owned(),
            version: 1,
            ..Secret::default()
        };
        let secrets = vec![secret("NPM_TOKEN", ""), secret("DEPLOY_KEY", "prj_1")];
        Ok(Response::new(ListSecretsResponse { secrets, next_cursor: String::new() }))
    }

    async fn delete_secret(&self, request: Request<DeleteSecretRequest>) -> Answer<DeleteSecretResponse> {
        let DeleteSecretRequest { name, project_id } = request.into_inner();
        self.0.lock().unwrap().orders.push(format!("delete secret {name} of {project_id:?}"));
        Ok(Response::new(DeleteSecretResponse {}))
    }
}
