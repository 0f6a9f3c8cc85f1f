//! Letting go of every session: for good when the process ends, or until an operator undoes it.

use super::Claimer;
use domain::{
    limits,
    mutant::{self, Mutant},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// How a loop is told to let go of its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leave {
    /// At the next step boundary.
    pub(crate) soon: CancellationToken,
    /// At once: the grace for streams is over.
    pub(crate) now: CancellationToken,
}

/// Whether this worker lets go of its sessions and takes no more.
#[derive(Debug, Default)]
pub(super) struct Drain(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    leave: Leave,
    undone: CancellationToken,
}

impl Drain {
    /// Gives what a loop that starts now listens to.
    pub(super) fn leave(&self) -> Leave {
        self.with(|asked| asked.leave.clone())
    }

    pub(super) fn is_on(&self) -> bool {
        self.with(|asked| asked.leave.soon.is_cancelled())
    }

    /// Lets this worker take sessions again. A loop that was told to let go does so all the same.
    fn undo(&self) {
        self.with(std::mem::take).undone.cancel();
    }

    fn with<T>(&self, work: impl FnOnce(&mut Asked) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Claimer {
    /// Does what an operator asks: to hand all sessions over and to take no more, or to take them again.
    pub(super) fn drain_if(self: &Arc<Self>, asked: bool) {
        if !asked {
            tracing::info!("an operator lets this worker take sessions again");
            self.drain.undo();
            self.lease.drain(false);
            return self.deps.bus.ring();
        }
        tracing::info!("an operator asks this worker to hand its sessions over");
        let (claimer, undone) = (Arc::clone(self), self.drain.with(|asked| asked.undone.clone()));
        self.tasks.spawn("drain", async move {
            // Dropped midway, the loops end by themselves all the same.
            let _handed_over: Option<()> = undone.run_until_cancelled(claimer.hand_over()).await;
        });
    }

    /// Ends every loop at its next step boundary, and what streams then after a grace; waits for all of them.
    pub(super) async fn hand_over(&self) {
        if mutant::on(Mutant::DrainDrops) {
            std::process::exit(0);
        }
        let leave = self.drain.leave();
        leave.soon.cancel();
        self.lease.drain(true);
        tracing::info!("draining: {} loops are handed over", self.slots_max - self.slots.available_permits());
        let grace = Duration::from_millis(limits::DRAIN_GRACE_MS);
        if tokio::time::timeout(grace, self.all_ended()).await.is_err() {
            leave.now.cancel();
            let forced = Duration::from_millis(limits::DRAIN_FORCED_MS);
            if tokio::time::timeout(forced, self.all_ended()).await.is_err() {
                tracing::error!("some loops did not end; their sessions are taken over when the lease ends");
            }
        }
        self.deps.bus.ring();
    }

    /// Waits until no loop runs. Cancel-safe.
    async fn all_ended(&self) {
        let all = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // The semaphores are never closed.
        let _loops = self.slots.acquire_many(all(self.slots_max)).await;
        let _aborted = self.aborts.acquire_many(all(limits::ABORTS_PARALLEL_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]
    use super::*;

    #[test]
    fn after_it_is_undone_only_those_leave_who_were_told() {
        let drain = Drain::default();
        let before = drain.leave();
        before.soon.cancel();
        assert!(drain.is_on() && drain.leave().soon.is_cancelled());
        drain.undo();
        assert!(!drain.is_on() && !drain.leave().soon.is_cancelled());
        assert!(before.soon.is_cancelled());
    }
}
