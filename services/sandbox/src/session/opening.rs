//! The progress of the opening of a session's workspace, for callers that ask meanwhile. It takes none of the locks of the session.

use chassis::lock;
use std::{path::PathBuf, sync::Mutex};

/// What an opening brings, and the directory that fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpeningStep {
    /// The repository, into this checkout.
    Clone(PathBuf),
    /// The objects of Git LFS, into this directory.
    Lfs(PathBuf),
    /// The submodules, into this checkout.
    Submodules(PathBuf),
}

/// The step of a session that opens.
#[derive(Debug, Default)]
pub(crate) struct OpeningProgress(Mutex<NewestStep>);

#[derive(Debug, Default)]
struct NewestStep {
    /// Its number among the steps of the session.
    number: u64,
    /// `None`: it has ended.
    step: Option<OpeningStep>,
}

/// Ends its step when it is dropped, but not a later one: a step may be dropped after another one has begun.
#[derive(Debug)]
pub(crate) struct StepGuard<'a> {
    progress: &'a OpeningProgress,
    number: u64,
}

impl OpeningProgress {
    pub(crate) fn enter(&self, step: OpeningStep) -> StepGuard<'_> {
        let mut newest = lock(&self.0);
        newest.number += 1;
        newest.step = Some(step);
        StepGuard { progress: self, number: newest.number }
    }

    /// The step at this moment.
    pub(crate) fn step(&self) -> Option<OpeningStep> {
        lock(&self.0).step.clone()
    }
}

impl Drop for StepGuard<'_> {
    fn drop(&mut self) {
        let mut newest = lock(&self.progress.0);
        if newest.number == self.number {
            newest.step = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_earlier_step_leaves_the_later_one() {
        let progress = OpeningProgress::default();
        let earlier = progress.enter(OpeningStep::Clone(PathBuf::from("a")));
        let step = OpeningStep::Lfs(PathBuf::from("b"));
        let later = progress.enter(step.clone());
        drop(earlier);
        assert_eq!(progress.step(), Some(step));
        drop(later);
        assert_eq!(progress.step(), None);
    }
}
