//! Nudges to whichever worker holds a session: look into the mailbox now. Best effort: the control row says the same.

use crate::{
    Bus,
    error::Error,
    queue::{Entry, Mode},
    subscription::{Begun, Heard, Subscription},
};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use futures::StreamExt as _;
use std::time::Duration;

/// Nudges for all sessions; a worker picks those that it holds.
#[derive(Debug)]
pub struct Nudges(Subscription);

impl Bus {
    /// Tells the holder of a session that an input was accepted that must not wait for the next step. Never waits for the
    /// network; dropped when too many wait already.
    pub fn nudge(&self, tenant: TenantId, session: &SessionId) {
        self.hints.nudge(format!("{}.v1.t.{tenant}.s.{session}.ctl", self.namespace));
    }

    /// Tells workers of inputs that must not wait, of any number of sessions: first whoever holds one, then the queue. With
    /// a Redis that does not answer this lasts as long as one answer may: what it is not told of, the sweep finds.
    pub async fn interrupt(&self, entries: &[Entry<'_>]) {
        for entry in entries {
            self.nudge(entry.tenant, entry.session);
        }
        let told: Vec<_> = entries.iter().map(|entry| self.enqueue(*entry, Mode::Normal)).collect();
        let mut told = futures::stream::iter(told).buffer_unordered(limits::HINTS_PARALLEL_MAX);
        while let Some(told) = told.next().await {
            if let Err(error) = told {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Redis was not told of all inputs; the sweeper will find them"
                );
                break;
            }
        }
        self.ring();
    }

    /// Listens for nudges, as soon as NATS can be told so; never waits for it.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn nudges(&self) -> Result<Nudges, Error> {
        let (subject, when) = (format!("{}.v1.t.*.s.*.ctl", self.namespace), (Begun::Queued, Duration::ZERO));
        Ok(Nudges(Subscription::begin(&self.nats, subject, when).await?))
    }
}

impl Nudges {
    /// Waits for the next nudge and gives its session. Cancel-safe.
    pub async fn next_nudge(&mut self) -> (TenantId, SessionId) {
        loop {
            let message = match self.0.next().await {
                Some(Heard::Message(message)) => message,
                Some(Heard::Joined) => continue,
                None => return futures::future::pending().await,
            };
            let mut words = message.subject.split('.').rev().skip(1);
            let session = words.next().and_then(|word| word.parse().ok());
            let tenant = words.nth(1).and_then(|word| word.parse().ok());
            if let (Some(tenant), Some(session)) = (tenant, session) {
                return (tenant, session);
            }
        }
    }
}
