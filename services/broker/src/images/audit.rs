//! One line of audit for each image that is resolved and each layer that is pulled, however that ends.

use super::{registry::credential::NamedCredential, request::ImageRequest};
use chassis::telemetry::AUDIT;
use domain::{
    ids::{ProjectId, TenantId},
    secret::SecretName,
};
use rpc::v1::ErrorCode;

/// The line. It is written when it is dropped.
pub(super) struct AuditLine {
    action: &'static str,
    tenant: TenantId,
    project: Option<ProjectId>,
    reference: String,
    secret: Option<(SecretName, u64)>,
    /// The layer; empty: the whole image.
    pub(super) blob: String,
    /// Bytes that came from the registry.
    pub(super) bytes: u64,
    outcome: &'static str,
}

impl AuditLine {
    /// Begins the line of an action.
    pub(super) fn new(action: &'static str, request: &ImageRequest) -> Self {
        Self {
            action,
            tenant: request.tenant,
            project: request.project.clone(),
            reference: request.reference.to_string(),
            secret: None,
            blob: String::new(),
            bytes: 0,
            outcome: ErrorCode::CallerLeft.as_str(),
        }
    }

    /// Notes the secret that is shown to the registry.
    pub(super) fn note_secret(&mut self, credential: Option<&NamedCredential>) {
        self.secret = credential.map(|named| (named.name.clone(), named.version));
    }

    /// Notes the outcome: `ok`, or the code of an error.
    pub(super) fn note_outcome(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let (action, outcome) = (self.action, self.outcome);
        metrics::counter!("flotilla_broker_images_total", "action" => action, "outcome" => outcome)
            .increment(1);
        metrics::counter!("flotilla_broker_image_bytes_total").increment(self.bytes);
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %self.tenant,
                project.id = self.project.as_ref().map(ProjectId::as_str),
                image.reference = self.reference,
                image.blob = self.blob,
                secret.name = self.secret.as_ref().map(|(name, _)| name.as_str()),
                secret.version = self.secret.as_ref().map(|(_, version)| version),
                bytes = self.bytes,
                outcome,
            },
            "an image was {action}"
        );
    }
}
