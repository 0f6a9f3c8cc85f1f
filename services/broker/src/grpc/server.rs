//! `BrokerService`: puts secrets into the vault. No call returns a value.

use crate::{error::Error, secrets::vault::Vault};
use chassis::secret::SecretBytes;
use domain::{
    ids::TenantId,
    limits,
    secret::{SecretAddress, SecretName},
};
use rpc::v1::{self, broker_service_server::BrokerService};
use std::sync::Arc;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

/// The service.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) vault: Arc<Vault>,
}

#[tonic::async_trait]
impl BrokerService for Server {
    async fn put_secret(
        &self,
        request: Request<v1::PutSecretRequest>,
    ) -> Result<Response<v1::PutSecretResponse>, Status> {
        let span = tracing::info_span!(
            "broker call",
            otel.name = "PutSecret",
            tenant.id = request.get_ref().tenant_id
        );
        rpc::trace::adopt(&span, request.metadata().as_ref());
        // A caller that leaves drops the transaction: the secret then has its old version.
        let result = self.put(request.into_inner()).instrument(span).await;
        let code = result.as_ref().err().map_or("ok", Error::code);
        metrics::counter!("flotilla_broker_calls_total", "method" => "PutSecret", "code" => code)
            .increment(1);
        result.map(Response::new).map_err(|error| {
            match error.code() {
                code @ ("internal" | "secret_not_sealed") => {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::error!(error.code = code, "PutSecret failed: {error}: {cause}");
                }
                code => tracing::debug!(error.code = code, "PutSecret was refused: {error}"),
            }
            error.to_status()
        })
    }
}

impl Server {
    async fn put(&self, mut request: v1::PutSecretRequest) -> Result<v1::PutSecretResponse, Error> {
        let value = SecretBytes::of(std::mem::take(&mut request.value));
        let tenant: TenantId =
            request.tenant_id.parse().map_err(|_| Error::ArgumentInvalid("the tenant's id is no UUID"))?;
        let name: SecretName = request.name.parse()?;
        let project = match request.project_id.as_str() {
            "" => None,
            id => Some(id.parse().map_err(|_| Error::ArgumentInvalid("the project's id is malformed"))?),
        };
        if request.actor.is_empty()
            || request.actor.len() > limits::NAME_BYTES_MAX
            || request.actor.contains('\0')
        {
            return Err(Error::ArgumentInvalid("the actor is missing or too long"));
        }
        let secret = self.vault.put(tenant, SecretAddress { project, name }, &value, &request.actor).await?;
        Ok(v1::PutSecretResponse { version: secret.version, created_at_ms: secret.created_at.0 })
    }
}
