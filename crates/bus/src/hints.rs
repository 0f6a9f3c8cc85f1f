//! Rings and nudges on their way out: one bounded queue and one task that sends, however long NATS is away. The client's
//! own queue stands still meanwhile, so nobody but that task waits for it.

use async_nats::Client;
use bytes::Bytes;
use domain::limits;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// The way in; clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Hints {
    /// Several rings that wait are one.
    rung: Arc<Notify>,
    nudges: mpsc::Sender<String>,
}

impl Hints {
    /// Starts the sender; it ends with the last clone. A ring goes to `wake`.
    pub(crate) fn start(nats: Client, wake: String) -> Self {
        let rung = Arc::new(Notify::new());
        let (nudges, waiting) = mpsc::channel(limits::NUDGES_UNSENT_MAX);
        tokio::spawn(send(nats, wake, Arc::clone(&rung), waiting));
        Self { rung, nudges }
    }

    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Sends a nudge to a subject, or drops it when too many wait.
    pub(crate) fn nudge(&self, subject: String) {
        if self.nudges.try_send(subject).is_err() {
            tracing::debug!("a nudge was dropped: {} of them wait", limits::NUDGES_UNSENT_MAX);
        }
    }
}

async fn send(nats: Client, wake: String, rung: Arc<Notify>, mut nudges: mpsc::Receiver<String>) {
    loop {
        // In no fixed order: neither may keep the other from being sent.
        let sent = tokio::select! {
            nudge = nudges.recv() => match nudge {
                Some(subject) => nats.publish(subject, Bytes::from_static(b"look")).await,
                None => return,
            },
            () = rung.notified() => nats.publish(wake.clone(), Bytes::new()).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a hint was not sent");
        }
    }
}
