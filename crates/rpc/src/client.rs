//! Adds the client's credential and the caller's trace to each call.

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue, errors::InvalidMetadataValue},
    service::Interceptor,
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

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        crate::trace::inject(request.metadata_mut());
        Ok(request)
    }
}
