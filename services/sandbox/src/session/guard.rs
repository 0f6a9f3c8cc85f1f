//! The guard that keeps the sandbox of a session from ending of idleness.

use crate::{isolation::policy::Limits, sandbox::Sandbox};
use std::{fmt::Debug, sync::Arc};

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
}

impl SandboxGuard {
    /// A guard that the session has counted.
    pub(super) fn new(session: Arc<dyn GuardCount>, sandbox: Arc<Sandbox>, limits: Limits) -> Self {
        Self { session, sandbox, limits }
    }

    /// The sandbox.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
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
