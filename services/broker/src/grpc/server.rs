//! `BrokerService`: puts secrets into the vault, and opens doors to the network. No call returns the value of a secret.

use crate::{
    egress::{
        doors::Doors,
        key::DoorKey,
        rules::{DoorRules, RuleList},
    },
    error::Error,
    secrets::vault::Vault,
};
use chassis::secret::SecretBytes;
use domain::{
    ids::TenantId,
    limits,
    secret::{SecretAddress, SecretName},
};
use rpc::v1::{self, broker_service_server::BrokerService};
use std::sync::Arc;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};

/// Lists of one door: one for each level of settings. Beyond it: `argument_invalid`.
const LISTS_MAX: usize = 4;

/// The service.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) vault: Arc<Vault>,
    /// `None`: this broker opens none.
    pub(crate) doors: Option<Arc<Doors>>,
}

#[tonic::async_trait]
impl BrokerService for Server {
    async fn put_secret(
        &self,
        request: Request<v1::PutSecretRequest>,
    ) -> Result<Response<v1::PutSecretResponse>, Status> {
        let call = Call::begin("PutSecret", &request.get_ref().tenant_id, &request);
        // A caller that leaves drops the transaction: the secret then has its old version.
        let result = self.put(request.into_inner()).instrument(call.span.clone()).await;
        call.end(result)
    }

    async fn open_egress(
        &self,
        request: Request<v1::OpenEgressRequest>,
    ) -> Result<Response<v1::OpenEgressResponse>, Status> {
        let call = Call::begin("OpenEgress", &request.get_ref().tenant_id, &request);
        let result = call.span.in_scope(|| self.open(request.into_inner()));
        call.end(result)
    }
}

/// A call that is being answered.
struct Call {
    method: &'static str,
    span: Span,
}

impl Call {
    fn begin<T>(method: &'static str, tenant: &str, request: &Request<T>) -> Self {
        let span = tracing::info_span!("broker call", otel.name = method, tenant.id = tenant);
        rpc::trace::adopt(&span, request.metadata().as_ref());
        Self { method, span }
    }

    /// Counts the result and logs an error. The caller gets its code; the cause stays here.
    #[allow(clippy::result_large_err)] // The type of every call.
    fn end<T>(&self, result: Result<T, Error>) -> Result<Response<T>, Status> {
        let (method, code) = (self.method, result.as_ref().err().map_or("ok", Error::code));
        metrics::counter!("flotilla_broker_calls_total", "method" => method, "code" => code).increment(1);
        result.map(Response::new).map_err(|error| {
            match code {
                "internal" | "secret_not_sealed" => {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::error!(error.code = code, "{method} failed: {error}: {cause}");
                }
                code => tracing::debug!(error.code = code, "{method} was refused: {error}"),
            }
            error.to_status()
        })
    }
}

impl Server {
    async fn put(&self, mut request: v1::PutSecretRequest) -> Result<v1::PutSecretResponse, Error> {
        let value = SecretBytes::of(std::mem::take(&mut request.value));
        let tenant = tenant(&request.tenant_id)?;
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

    fn open(&self, request: v1::OpenEgressRequest) -> Result<v1::OpenEgressResponse, Error> {
        let doors = self.doors.as_ref().ok_or(Error::NoDoors)?;
        let session = request
            .session_id
            .parse()
            .map_err(|_| Error::ArgumentInvalid("the session's id is malformed"))?;
        if request.lists.len() > LISTS_MAX {
            return Err(Error::ArgumentInvalid("there are more lists than levels of settings"));
        }
        let lists = request.lists.into_iter();
        let lists = lists.map(|list| RuleList { setting: list.setting, entries: list.entries }).collect();
        doors.open(&DoorKey { tenant: tenant(&request.tenant_id)?, session }, &DoorRules { lists })?;
        Ok(v1::OpenEgressResponse {})
    }
}

fn tenant(id: &str) -> Result<TenantId, Error> {
    id.parse().map_err(|_| Error::ArgumentInvalid("the tenant's id is no UUID"))
}
