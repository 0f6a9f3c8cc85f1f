//! Nudges to whichever worker holds a session: look into the mailbox now. Best effort: the control row says the same.

use crate::{Bus, error::Error};
use domain::ids::{SessionId, TenantId};
use futures::StreamExt as _;

/// Nudges for all sessions; a worker picks those that it holds.
#[derive(Debug)]
pub struct Nudges(async_nats::Subscriber);

impl Bus {
    /// Tells the holder of a session that an input was accepted that must not wait for the next step.
    pub fn nudge(&self, tenant: TenantId, session: &SessionId) {
        let (nats, subject) =
            (self.nats.clone(), format!("{}.v1.t.{tenant}.s.{session}.ctl", self.namespace));
        tokio::spawn(async move {
            if let Err(error) = nats.publish(subject, bytes::Bytes::from_static(b"look")).await {
                tracing::debug!(%error, "a nudge was not sent");
            }
        });
    }

    /// Listens for nudges.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn nudges(&self) -> Result<Nudges, Error> {
        Ok(Nudges(self.nats.subscribe(format!("{}.v1.t.*.s.*.ctl", self.namespace)).await?))
    }
}

impl Nudges {
    /// Waits for the next nudge and gives its session. Cancel-safe.
    pub async fn next_nudge(&mut self) -> (TenantId, SessionId) {
        loop {
            let Some(message) = self.0.next().await else { return futures::future::pending().await };
            let mut words = message.subject.split('.').rev().skip(1);
            let session = words.next().and_then(|word| word.parse().ok());
            let tenant = words.nth(1).and_then(|word| word.parse().ok());
            if let (Some(tenant), Some(session)) = (tenant, session) {
                return (tenant, session);
            }
        }
    }
}
