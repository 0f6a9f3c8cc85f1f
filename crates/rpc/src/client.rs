//! Adds the client's credential and the caller's trace to each call.

use crate::v1::{GetIsolationRequest, sandbox_service_client::SandboxServiceClient};
use std::time::Duration;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue, errors::InvalidMetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

/// Sends a bearer token, and the current span as the parent of the server's.
#[derive(Debug, Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    /// Wraps a token.
    ///
    /// # Errors
    /// If the token contains characters that a header cannot carry.
    pub fn new(token: &str) -> Result<Self, InvalidMetadataValue> {
        let mut value = MetadataValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

/// Longest wait for the id of the sandbox service.
const IDENTITY: Duration = Duration::from_secs(2);

/// Asks for the id of the sandbox service. `None`: it is of an earlier version.
///
/// # Errors
/// The refusal of the service, or why it does not answer within two seconds.
pub async fn find_sandbox_id(
    mut client: SandboxServiceClient<InterceptedService<Channel, Bearer>>,
) -> Result<Option<String>, Status> {
    let mut request = Request::new(GetIsolationRequest {});
    request.set_timeout(IDENTITY);
    let id = client.get_isolation(request).await?.into_inner().sandbox_id;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        crate::trace::inject(request.metadata_mut());
        Ok(request)
    }
}
