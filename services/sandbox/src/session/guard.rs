//! The guard that keeps the sandbox of a session from ending of idleness.

use crate::{disk::workspace::WorkspaceDisk, isolation::policy::Limits, sandbox::Sandbox};
use std::{fmt::Debug, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// Counts the guards of one session.
pub(super) trait GuardCount: Debug + Send + Sync {
    /// A guard was dropped.
    fn release(&self);
}

/// The right to use a session's sandbox. The sandbox does not end of idleness while a guard exists, and the session stays in
/// memory.
#[derive(Debug)]
pub struct SandboxGuard {
    session: Arc<dyn GuardCount>,
    sandbox: Arc<Sandbox>,
    limits: Limits,
    disk: Arc<WorkspaceDisk>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl SandboxGuard {
    /// A guard that the session has counted.
    pub(super) fn new(
        session: Arc<dyn GuardCount>,
        sandbox: Arc<Sandbox>,
        limits: Limits,
        disk: Arc<WorkspaceDisk>,
    ) -> Self {
        Self { session, sandbox, limits, disk, _permit: None }
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

    /// The disk of the workspace that it sees.
    pub fn disk(&self) -> &WorkspaceDisk {
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
