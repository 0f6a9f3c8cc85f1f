//! Nudges: a session has an input that must not wait for its next step. They are handled by a separate task, so that a slow
//! claim in Redis or Postgres does not delay them, and until the last loop has ended.

use super::claimer::{Claimer, Key};
use crate::process::store_timeout::with_store_timeout;
use bus::control::Nudges;
use chassis::tasks;
use domain::limits;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Handles nudges until `handed_over`.
pub(super) fn spawn(claimer: &Arc<Claimer>, mut nudges: Nudges, handed_over: &CancellationToken) {
    let (without_loop, mut aborts) = mpsc::channel(limits::NUDGES_MAX);
    let (own, ended) = (Arc::clone(claimer), handed_over.clone());
    claimer.tasks.spawn("nudges", async move {
        loop {
            let key = tokio::select! {
                () = ended.cancelled() => return,
                key = nudges.next_nudge() => key,
                key = own.lease.next_nudge() => key,
            };
            let has_loop = tasks::catch_panic("nudges", async { own.nudge(&key) }).await;
            if has_loop == Some(false) {
                // If the queue is full, the sweep finds the abort.
                drop(without_loop.try_send(key));
            }
        }
    });
    let (own, ended) = (Arc::clone(claimer), handed_over.clone());
    claimer.tasks.spawn("aborts", async move {
        loop {
            tokio::select! {
                () = ended.cancelled() => return,
                Some(key) = aborts.recv() => {
                    tasks::catch_panic("aborts", close_if_aborted(&own, key)).await;
                }
            }
        }
    });
}

/// A session without a loop may have been aborted. Its abort must not wait for a slot or for a worker that takes sessions.
async fn close_if_aborted(claimer: &Arc<Claimer>, key: Key) {
    let (tenant, session) = &key;
    if with_store_timeout(claimer.deps.store.is_aborted(*tenant, session)).await.unwrap_or(false) {
        claimer.close_aborted(key);
    }
}
