//! One line of audit for each push, however it ends.

use super::{
    error::PushError,
    request::{ObjectId, PushRequest},
};
use chassis::telemetry::AUDIT;
use domain::ids::ProjectId;
use std::time::Instant;

/// The line. It is written when it is dropped.
pub(super) struct AuditLine<'a> {
    request: &'a PushRequest,
    begun_at: Instant,
    /// The secret that was opened.
    pub(super) secret_version: Option<u64>,
    /// The commit to which the branch was to be moved.
    pub(super) commit: Option<ObjectId>,
    outcome: &'static str,
}

impl<'a> AuditLine<'a> {
    pub(super) fn new(request: &'a PushRequest) -> Self {
        let outcome = PushError::CallerLeft.code().as_str();
        Self { request, begun_at: Instant::now(), secret_version: None, commit: None, outcome }
    }

    /// Notes the outcome: `ok`, `previewed`, or the code of an error.
    pub(super) fn note_outcome(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for AuditLine<'_> {
    fn drop(&mut self) {
        let PushRequest { tenant, project, session, repository, secret, branch, .. } = self.request;
        let outcome = self.outcome;
        metrics::counter!("flotilla_broker_pushes_total", "outcome" => outcome).increment(1);
        tracing::info!(
            target: AUDIT,
            {
                tenant.id = %tenant,
                session.id = %session,
                project.id = project.as_ref().map(ProjectId::as_str),
                git.url = %repository,
                git.branch = %branch,
                git.commit = self.commit.as_ref().map(ObjectId::as_str),
                secret.name = %secret,
                secret.version = self.secret_version,
                duration_ms = u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(u64::MAX),
                outcome,
            },
            "a session was pushed"
        );
    }
}
