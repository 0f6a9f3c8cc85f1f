//! Ids in requests.

use crate::error::Error;
use domain::ids::{ProjectId, TenantId};

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
