//! "There may be work": rung after each enqueue, heard by every worker. A lost ring costs a poll interval.

use crate::{
    Bus,
    error::Error,
    subscription::{Begun, Subscription},
};
use std::time::Duration;

/// The ears of a worker.
#[derive(Debug)]
pub struct Doorbell(Subscription);

impl Bus {
    /// Rings. Never waits for the network, and leaves nothing behind that does: rings that wait are one.
    pub fn ring(&self) {
        self.hints.ring();
    }

    /// Listens, as soon as NATS can be told so; never waits for it.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn listen(&self) -> Result<Doorbell, Error> {
        let when = (Begun::Queued, Duration::ZERO);
        Ok(Doorbell(Subscription::begin(&self.nats, wake_subject(&self.namespace), when).await?))
    }
}

impl Doorbell {
    /// Waits for a ring; never ends before one. Cancel-safe. To hear again counts as one: some may have been missed.
    pub async fn heard(&mut self) {
        if self.0.next().await.is_none() {
            // The client is closed: whoever listens polls.
            futures::future::pending::<()>().await;
        }
    }
}

/// Where rings go in a namespace.
pub(crate) fn wake_subject(namespace: &str) -> String {
    format!("{namespace}.v1.wake")
}
