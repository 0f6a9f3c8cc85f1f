//! "A person may soon prompt this session": one worker may bring what sessions share before. Best effort: the first turn of the session brings what is missing.

use crate::{
    Bus, subjects,
    subscription::{Signal, Subscription},
};
use domain::ids::{SessionId, TenantId};

/// The workers, of which one gets each hint.
const WORKERS: &str = "workers";

/// The hints that reach a worker.
#[derive(Debug)]
pub struct WarmUpHints(Subscription);

impl Bus {
    /// Hints that a person may soon prompt a session. Never waits for the network; drops the hint when too many are pending.
    pub fn hint_warm_up(&self, tenant: TenantId, session: &SessionId) {
        self.hints.nudge(subjects::warm_up(&self.namespace, tenant, session));
    }

    /// Subscribes to hints as soon as NATS accepts the subscription; does not wait for that. Each hint reaches one of the subscribers.
    pub fn warm_up_hints(&self) -> WarmUpHints {
        WarmUpHints(Subscription::share(&self.nats, subjects::any_warm_up(&self.namespace), WORKERS))
    }
}

impl WarmUpHints {
    /// Waits for the next hint and returns its session. Cancel-safe.
    pub async fn next_hint(&mut self) -> (TenantId, SessionId) {
        loop {
            let message = match self.0.next().await {
                Some(Signal::Message(message)) => message,
                Some(Signal::Joined) => continue,
                // The client is closed.
                None => return futures::future::pending().await,
            };
            if let Some(hinted) = subjects::parse_session(&message.subject) {
                return hinted;
            }
        }
    }
}
