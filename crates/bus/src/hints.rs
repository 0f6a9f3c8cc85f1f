//! Outgoing rings and nudges: one bounded queue, and one task that sends. While NATS is away the client's own queue does
//! not move, and only that task waits for it.

use crate::outgoing;
use async_nats::Client;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Pending nudges of one process: more than the largest tree of sessions needs. Further ones are dropped, because the control row
/// contains the same information.
const NUDGES_UNSENT_MAX: usize = 1_024;

/// The sending end. Clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Hints {
    /// Several pending rings are one.
    ring: Arc<Notify>,
    nudges: mpsc::Sender<String>,
}

impl Hints {
    /// Starts the task. It ends with the last clone. Rings go to the subject `wake`.
    pub(crate) fn start(nats: Client, wake: String) -> Self {
        let ring = Arc::new(Notify::new());
        let (nudges, pending) = mpsc::channel(NUDGES_UNSENT_MAX);
        outgoing::spawn(send(nats, wake, Arc::clone(&ring), pending));
        Self { ring, nudges }
    }

    pub(crate) fn ring(&self) {
        self.ring.notify_one();
    }

    /// Sends a nudge to a subject, or drops it when the queue is full.
    pub(crate) fn nudge(&self, subject: String) {
        if self.nudges.try_send(subject).is_err() {
            tracing::debug!("dropped a nudge: {} nudges are pending", NUDGES_UNSENT_MAX);
        }
    }
}

async fn send(nats: Client, wake: String, ring: Arc<Notify>, mut nudges: mpsc::Receiver<String>) {
    loop {
        // Without `biased`: neither kind may starve the other.
        tokio::select! {
            nudge = nudges.recv() => match nudge {
                Some(subject) => outgoing::send(&nats, subject, Bytes::from_static(b"look")).await,
                None => return,
            },
            () = ring.notified() => outgoing::send(&nats, wake.clone(), Bytes::new()).await,
        }
    }
}
