//! What a caller wants of an image.

use super::content::reference::ImageReference;
use domain::{
    ids::{ProjectId, TenantId},
    secret::SecretName,
};

/// What is asked for, and by whom.
#[derive(Debug, Clone)]
pub struct ImageRequest {
    /// Who pays.
    pub tenant: TenantId,
    /// The project whose secrets come before those of the tenant.
    pub project: Option<ProjectId>,
    pub reference: ImageReference,
    /// The secret with the credential. `None`: anonymous.
    pub credential: Option<SecretName>,
}
