//! "There may be work": rung after each enqueue, heard by every worker. A lost ring costs a poll interval.

use crate::{Bus, error::Error};
use futures::StreamExt as _;

/// The ears of a worker.
#[derive(Debug)]
pub struct Doorbell(async_nats::Subscriber);

impl Bus {
    fn wake_subject(&self) -> String {
        format!("{}.v1.wake", self.namespace)
    }

    /// Rings. Never waits for the network.
    pub fn ring(&self) {
        let (nats, subject) = (self.nats.clone(), self.wake_subject());
        tokio::spawn(async move {
            if let Err(error) = nats.publish(subject, bytes::Bytes::new()).await {
                tracing::debug!(%error, "the doorbell was not rung");
            }
        });
    }

    /// Listens.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn listen(&self) -> Result<Doorbell, Error> {
        Ok(Doorbell(self.nats.subscribe(self.wake_subject()).await?))
    }
}

impl Doorbell {
    /// Waits for a ring; never ends before one. Cancel-safe.
    pub async fn heard(&mut self) {
        if self.0.next().await.is_none() {
            // The client is closed: whoever listens polls.
            futures::future::pending::<()>().await;
        }
    }
}
