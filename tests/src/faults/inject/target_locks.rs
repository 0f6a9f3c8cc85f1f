//! Locks that keep two faults from using the same target at the same time.

use super::fault::Target;
use crate::faults::cluster::Service;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Locks on the targets of running faults. Clones share them.
#[derive(Clone, Default)]
pub struct TargetLocks(Arc<Mutex<BTreeSet<Target>>>);

impl TargetLocks {
    /// Locks all of these targets and returns true, or returns false if another fault holds one of them.
    pub fn lock(&self, targets: &[Target]) -> bool {
        let mut locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !targets.iter().any(|target| locked.contains(target));
        if is_free {
            locked.extend(targets.iter().cloned());
        }
        is_free
    }

    pub fn unlock(&self, targets: &[Target]) {
        let mut locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.iter().for_each(|target| {
            locked.remove(target);
        });
    }

    /// Returns whether a fault holds this target.
    pub(super) fn holds(&self, target: &Target) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }

    /// Counts the workers that a fault holds.
    pub(super) fn workers(&self) -> usize {
        let locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locked.iter().filter(|target| is_worker(target)).count()
    }
}

/// Returns whether a target is the process of a worker.
pub(super) fn is_worker(target: &Target) -> bool {
    matches!(target, Target::Process(Service::Worker(_)))
}
