//! The implementation of every gRPC service, and the caller of a method.

use super::status::to_status;
use crate::{
    app::gateway::Gateway,
    auth::{
        client,
        keys::{Credentials, TENANT_HEADER},
        principal::Principal,
    },
    errors::error::Error,
};
use axum::http::{Extensions, HeaderMap};
use tonic::{Request, Status};

/// The implementation of every service.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Gateway);

/// The caller, whom the router has found to have the scope of the method.
///
/// # Errors
/// `key_missing`: the call did not come through the router.
pub(super) fn principal<T>(request: &Request<T>) -> Result<Principal, Status> {
    request.extensions().get().cloned().ok_or_else(|| to_status(Error::KeyMissing))
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
