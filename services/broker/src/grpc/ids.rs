//! Ids in requests.

use crate::{egress::key::DoorKey, error::Error};
use domain::ids::{ProjectId, SessionId, TenantId};

/// Parses the id of a tenant.
///
/// # Errors
/// `ArgumentInvalid`.
pub(super) fn tenant(text: &str) -> Result<TenantId, Error> {
    text.parse().map_err(|_| Error::ArgumentInvalid("the tenant's id is no UUID"))
}

/// Parses the id of a project. `None`: there is none.
///
/// # Errors
/// `ArgumentInvalid`.
pub(super) fn project(text: &str) -> Result<Option<ProjectId>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Error::ArgumentInvalid("the project's id is malformed"))
}

/// Parses the ids of a session, which name its door.
///
/// # Errors
/// `ArgumentInvalid`.
pub(super) fn door(tenant_id: &str, session_id: &str) -> Result<DoorKey, Error> {
    Ok(DoorKey { tenant: tenant(tenant_id)?, session: session(session_id)? })
}

/// Parses the id of a session.
///
/// # Errors
/// `ArgumentInvalid`.
pub(super) fn session(text: &str) -> Result<SessionId, Error> {
    text.parse().map_err(|_| Error::ArgumentInvalid("the session's id is malformed"))
}
