//! Nudges to the worker that holds a session: read the mailbox now. Best effort: the control row contains the same
//! information.

use crate::{
    Bus,
    error::Error,
    queue::{Mode, QueueEntry},
    subjects,
    subscription::{Signal, Start, Subscription},
};
use domain::ids::{SessionId, TenantId};
use futures::StreamExt as _;
use std::time::Duration;

/// Parallel Redis calls for one abort: the whole tree needs few round trips, and other callers do not wait behind it. The others wait.
const HINTS_PARALLEL_MAX: usize = 16;

/// The nudges for all sessions. A worker picks those of the sessions that it holds.
#[derive(Debug)]
pub struct Nudges(Subscription);

impl Bus {
    /// Tells the holder of a session about an input that must not wait for the next step. Never waits for the network; drops the
    /// nudge when too many are pending.
    pub fn nudge(&self, tenant: TenantId, session: &SessionId) {
        self.hints.nudge(subjects::nudge(&self.namespace, tenant, session));
    }

    /// Tells workers about inputs that must not wait, of any number of sessions: first the holders, then the queue. While Redis
    /// does not answer, this takes one timeout; the sweep finds the rest.
    pub async fn interrupt(&self, entries: &[QueueEntry<'_>]) {
        for entry in entries {
            self.nudge(entry.tenant, entry.session);
        }
        let calls: Vec<_> = entries.iter().map(|entry| self.enqueue(*entry, Mode::Normal)).collect();
        let mut results = futures::stream::iter(calls).buffer_unordered(HINTS_PARALLEL_MAX);
        while let Some(result) = results.next().await {
            if let Err(error) = result {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot enqueue all sessions in Redis; the sweep will find them"
                );
                break;
            }
        }
        self.ring();
    }

    /// Subscribes to nudges as soon as NATS accepts the subscription; does not wait for that.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn nudges(&self) -> Result<Nudges, Error> {
        let subject = subjects::any_nudge(&self.namespace);
        Ok(Nudges(Subscription::begin(&self.nats, subject, Start::Queued, Duration::ZERO).await?))
    }
}

impl Nudges {
    /// Waits for the next nudge and returns its session. Cancel-safe.
    pub async fn next_nudge(&mut self) -> (TenantId, SessionId) {
        loop {
            let message = match self.0.next().await {
                Some(Signal::Message(message)) => message,
                Some(Signal::Joined) => continue,
                None => return futures::future::pending().await,
            };
            if let Some(nudged) = subjects::parse_session(&message.subject) {
                return nudged;
            }
        }
    }
}
