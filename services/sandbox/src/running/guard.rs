//! The guard that keeps the sandbox of a session from ending of idleness.

use super::start::SandboxStart;
use crate::{disk::workspace::WorkspaceDisk, isolation::policy::Limits, sandbox::Sandbox};
use std::{fmt::Debug, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// Counts the guards of one session.
pub(crate) trait GuardCount: Debug + Send + Sync {
    /// A guard was made.
    fn hold(&self);

    /// A guard was dropped.
    fn release(&self);
}

/// The right to use a session's sandbox. The sandbox does not end of idleness while a guard exists, and the session stays in
/// memory.
#[derive(Debug)]
pub struct SandboxGuard {
    session: Arc<dyn GuardCount>,
    sandbox: Arc<Sandbox>,
    start: Arc<SandboxStart>,
    limits: Limits,
    disk: Arc<WorkspaceDisk>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl SandboxGuard {
    /// A guard of a session's sandbox.
    pub(crate) fn new(
        session: Arc<dyn GuardCount>,
        sandbox: Arc<Sandbox>,
        start: Arc<SandboxStart>,
        limits: Limits,
        disk: Arc<WorkspaceDisk>,
    ) -> Self {
        session.hold();
        Self { session, sandbox, start, limits, disk, _permit: None }
    }

    /// Another guard of the same sandbox, without the permit.
    pub fn another(&self) -> Self {
        let (session, sandbox, start) =
            (Arc::clone(&self.session), Arc::clone(&self.sandbox), Arc::clone(&self.start));
        Self::new(session, sandbox, start, self.limits, Arc::clone(&self.disk))
    }

    /// The same, with a permit of [`WorkspaceDisk::admit`] that is held as long.
    pub fn with(mut self, permit: Option<OwnedSemaphorePermit>) -> Self {
        self._permit = permit;
        self
    }

    /// The sandbox.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Its start.
    pub fn start(&self) -> &Arc<SandboxStart> {
        &self.start
    }

    /// The disk of the workspace that it sees.
    pub fn disk(&self) -> &Arc<WorkspaceDisk> {
        &self.disk
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }
}

impl Drop for SandboxGuard {
    fn drop(&mut self) {
        self.session.release();
    }
}
