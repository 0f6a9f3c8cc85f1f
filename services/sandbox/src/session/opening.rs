//! What the opening of a session's workspace brings at this moment, for callers that ask meanwhile. It takes none of the locks of the session.

use chassis::lock;
use std::{path::PathBuf, sync::Mutex};

/// What an opening brings, and the directory that fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpeningStep {
    /// The repository, into this checkout.
    Clone(PathBuf),
    /// The objects of Git LFS, into this directory.
    Lfs(PathBuf),
}

/// The step of a session that opens.
#[derive(Debug, Default)]
pub(crate) struct Opening(Mutex<Option<OpeningStep>>);

/// Ends the step when it is dropped.
#[derive(Debug)]
pub(crate) struct StepGuard<'a>(&'a Opening);

impl Opening {
    /// Enters a step.
    pub(crate) fn enter(&self, step: OpeningStep) -> StepGuard<'_> {
        *lock(&self.0) = Some(step);
        StepGuard(self)
    }

    /// The step at this moment.
    pub(crate) fn step(&self) -> Option<OpeningStep> {
        lock(&self.0).clone()
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) = None;
    }
}
