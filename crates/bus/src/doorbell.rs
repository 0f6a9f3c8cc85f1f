//! "There may be work": one ring after each enqueue, for every worker. A lost ring costs one poll interval.

use crate::{
    Bus,
    error::Error,
    subjects,
    subscription::{Start, Subscription},
};
use std::time::Duration;

/// The rings that reach a worker.
#[derive(Debug)]
pub struct Doorbell(Subscription);

impl Bus {
    /// Rings. Never waits for the network and queues nothing: several pending rings are one.
    pub fn ring(&self) {
        self.hints.ring();
    }

    /// Subscribes to rings as soon as NATS accepts the subscription; does not wait for that.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn listen(&self) -> Result<Doorbell, Error> {
        let subject = subjects::wake(&self.namespace);
        Ok(Doorbell(Subscription::begin(&self.nats, subject, Start::Queued, Duration::ZERO).await?))
    }
}

impl Doorbell {
    /// Waits for a ring. Cancel-safe. A new connection counts as a ring, because rings may have been lost before it.
    pub async fn wait(&mut self) {
        if self.0.next().await.is_none() {
            // The client is closed, so this never rings again: the worker polls.
            futures::future::pending::<()>().await;
        }
    }
}
