//! The implementation of every gRPC service, and its authentication.

use super::status::to_status;
use crate::{
    app::ground::gateway::Gateway,
    auth::{
        client,
        keys::{Credentials, TENANT_HEADER},
        live_keys::RequestKey,
        principal::Principal,
    },
    ground::error::Error,
};
use axum::http::{Extensions, HeaderMap};
use chassis::port;
use tonic::{Request, Status};

/// The implementation of every service.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Gateway);

impl Service {
    /// The principal that acts for a tenant.
    pub(super) async fn principal<T>(&self, request: &Request<T>) -> Result<Principal, Status> {
        let principal = self.0.authenticate(credentials(request)?).await.map_err(to_status)?;
        vouch(request);
        RequestKey::note(request.extensions(), principal.key());
        Ok(principal)
    }

    /// The operator.
    pub(super) fn operator<T>(&self, request: &Request<T>) -> Result<Principal, Status> {
        let operator = self.0.authenticate_operator(credentials(request)?).map_err(to_status)?;
        vouch(request);
        Ok(operator)
    }

    /// The operator, or else the principal that acts for a tenant.
    pub(super) async fn operator_or_tenant<T>(&self, request: &Request<T>) -> Result<Principal, Status> {
        if self.0.is_operators(credentials(request)?).map_err(to_status)? {
            self.operator(request)
        } else {
            self.principal(request).await
        }
    }
}

/// Records that the connection of a request belongs to a client with a key.
fn vouch<T>(request: &Request<T>) {
    port::vouch(request.extensions());
}

fn credentials<T>(request: &Request<T>) -> Result<Credentials<'_>, Status> {
    credentials_of(request.metadata().as_ref(), request.extensions()).map_err(to_status)
}

/// The credentials in the head of a call.
///
/// # Errors
/// `key_missing`.
pub(crate) fn credentials_of<'a>(
    headers: &'a HeaderMap,
    extensions: &Extensions,
) -> Result<Credentials<'a>, Error> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let key = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    Ok(Credentials {
        key: key.ok_or(Error::KeyMissing)?,
        tenant: text(TENANT_HEADER),
        client: client::of(extensions),
    })
}
