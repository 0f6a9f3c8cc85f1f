//! Hands every session over to other workers.

use super::claimer::Claimer;
use domain::limits;
use std::{sync::Arc, time::Duration};

/// Time for loops to hand over their sessions when they must end at once; milliseconds.
const DRAIN_FORCED_MS: u64 = 1_500;

/// Applies the operator's request: to hand over all sessions and take no more, or to take sessions again.
pub(super) fn apply_drain(claimer: &Arc<Claimer>, requested: bool) {
    if !requested {
        tracing::info!("an operator lets this worker take sessions again");
        claimer.drain.undo();
        claimer.lease.drain(false);
        return claimer.deps.bus.ring();
    }
    tracing::info!("an operator drains this worker; handing its sessions over");
    let (claimer, undone) = (Arc::clone(claimer), claimer.drain.undone());
    let tasks = claimer.tasks.clone();
    tasks.spawn("drain", async move {
        // If an operator undoes the drain midway, the loops that were told to leave still end by themselves.
        let _handed_over: Option<()> = undone.run_until_cancelled(hand_over(&claimer)).await;
    });
}

/// Ends every loop at its next step boundary, and open streams after a grace period. Waits for all loops.
pub(super) async fn hand_over(claimer: &Claimer) {
    let leave = claimer.drain.leave();
    leave.soon.cancel();
    claimer.lease.drain(true);
    tracing::info!("draining: handing over {} sessions", claimer.loops_running());
    let grace = Duration::from_millis(limits::DRAIN_GRACE_MS);
    if tokio::time::timeout(grace, claimer.all_ended()).await.is_err() {
        leave.now.cancel();
        let forced = Duration::from_millis(DRAIN_FORCED_MS);
        if tokio::time::timeout(forced, claimer.all_ended()).await.is_err() {
            tracing::error!("some loops did not end; other workers take their sessions when the lease ends");
        }
    }
    claimer.deps.bus.ring();
}
