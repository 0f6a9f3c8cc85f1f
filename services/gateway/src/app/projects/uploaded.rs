//! What is known of the uploaded files of a project: they stay as they are until a person uploads others.

use super::bundle_head::{HEAD_BYTES, find_commit};
use crate::{app::gateway::Gateway, auth::principal::Principal, errors::error::Error, scope::Scope};
use domain::{
    ids::Timestamp,
    session::{Origin, Source},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadedSource {
    /// The commit that sessions start from; empty if the beginning of the bundle does not say.
    pub(crate) commit: String,
    pub(crate) uploaded_at: Timestamp,
}

/// Returns what is known of a source; `None` for a source that was not uploaded.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn find(
    gateway: &Gateway,
    principal: &Principal,
    source: &Source,
) -> Result<Option<UploadedSource>, Error> {
    let Origin::Bundle(id) = &source.origin else { return Ok(None) };
    let tenant = principal.tenant(Scope::Read)?;
    let start = gateway.state.store.find_bundle_start(tenant, id, HEAD_BYTES).await?;
    Ok(start.map(|start| UploadedSource {
        commit: find_commit(&start.bytes).unwrap_or_default().to_owned(),
        uploaded_at: start.created_at,
    }))
}
