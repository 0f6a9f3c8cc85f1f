//! Nudges: a session has an input that must not wait for its next step. They are heard beside the claims, however long
//! Redis or Postgres take for an answer there, and until the last loop has ended.

use super::{Claimer, Key};
use crate::record::answered;
use bus::control::Nudges;
use domain::limits;
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

impl Claimer {
    /// Hears nudges until `handed_over`.
    pub(super) fn hear_nudges(self: Arc<Self>, mut nudges: Nudges, handed_over: &CancellationToken) {
        let (elsewhere, mut unknown) = mpsc::channel(limits::NUDGES_MAX);
        let (claimer, ended) = (Arc::clone(&self), handed_over.clone());
        self.tasks.spawn("nudges", async move {
            loop {
                let key = tokio::select! {
                    () = ended.cancelled() => return,
                    key = nudges.next_nudge() => key,
                    key = claimer.lease.next_nudge() => key,
                };
                if let Some(key) = claimer.nudge(key) {
                    // When too many wait, the sweep finds it.
                    drop(elsewhere.try_send(key));
                }
            }
        });
        let (claimer, ended) = (Arc::clone(&self), handed_over.clone());
        self.tasks.spawn("aborts", async move {
            loop {
                tokio::select! {
                    () = ended.cancelled() => return,
                    Some(key) = unknown.recv() => claimer.close_if_aborted(key).await,
                }
            }
        });
    }

    /// Tells the loop of a session to look into its mailbox. Gives the session back when it has no loop here.
    fn nudge(&self, key: Key) -> Option<Key> {
        match self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            Some(loop_) => {
                loop_.send_modify(|count| *count += 1);
                None
            }
            None => Some(key),
        }
    }

    /// A session without a loop may have been aborted: that must not wait for a slot, nor for a worker that takes more
    /// than aborts.
    async fn close_if_aborted(&self, key: Key) {
        if answered(self.deps.store.is_aborted(key.0, &key.1)).await.unwrap_or(false) {
            self.close_aborted(key).await;
        }
    }

    /// Takes a session whose abort waits and that no loop has, beyond the slots.
    pub(super) async fn close_aborted(&self, key: Key) {
        if !*self.lease.runs.borrow() || self.shutdown.is_cancelled() {
            return;
        }
        if let Ok(place) = Arc::clone(&self.aborts).try_acquire_owned() {
            self.take(key, place).await;
        }
    }
}
