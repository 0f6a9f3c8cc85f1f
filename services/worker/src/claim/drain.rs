//! Whether a worker drains: until the process ends, or until an operator undoes it.

use crate::process::control::Leave;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Whether this worker hands over its sessions and takes no more.
#[derive(Debug, Default)]
pub(super) struct Drain(Mutex<DrainTokens>);

#[derive(Debug, Default)]
struct DrainTokens {
    leave: Leave,
    undone: CancellationToken,
}

impl Drain {
    /// The token for a loop that starts now.
    pub(super) fn leave(&self) -> Leave {
        self.with(|tokens| tokens.leave.clone())
    }

    /// Cancelled when an operator undoes the drain.
    pub(super) fn undone(&self) -> CancellationToken {
        self.with(|tokens| tokens.undone.clone())
    }

    pub(super) fn is_on(&self) -> bool {
        self.with(|tokens| tokens.leave.soon.is_cancelled())
    }

    /// Lets this worker take sessions again. Loops that were already told to leave still do.
    pub(super) fn undo(&self) {
        self.with(std::mem::take).undone.cancel();
    }

    fn with<T>(&self, work: impl FnOnce(&mut DrainTokens) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_drain_is_undone_only_loops_from_before_leave() {
        let drain = Drain::default();
        let before = drain.leave();
        before.soon.cancel();
        assert!(drain.is_on() && drain.leave().soon.is_cancelled());
        drain.undo();
        assert!(!drain.is_on() && !drain.leave().soon.is_cancelled());
        assert!(before.soon.is_cancelled());
    }
}
