//! Reports about the ready queue, for operators and to explain why a session waits. They only read, and their size is
//! bounded.

use super::script;
use crate::{Bus, error::Error};
use domain::{ids::TenantId, session::Class};
use serde::{Deserialize, de::DeserializeOwned};

/// The share of a tenant, its sessions, and the rate of their admission.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Outlook {
    pub running: u64,
    /// Loops that may run.
    pub running_max: u32,
    /// Share of the slots.
    pub weight: u32,
    /// Waiting sessions, by the index of their class in [`Class::ALL`].
    pub ready: [u64; Class::ALL.len()],
    /// Smoothed time between two of its claims while it had work waiting, in milliseconds; `None` before its first one.
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

impl Bus {
    /// Returns the outlook of a tenant. The waiting time of a session is about its position times `interval_ms`.
    ///
    /// # Errors
    /// `Redis`; `Answer`.
    pub async fn outlook(&self, tenant: TenantId) -> Result<Outlook, Error> {
        let answer: String = script::OUTLOOK
            .key(self.prefix())
            .arg(tenant.to_string())
            .invoke_async(&mut self.redis.clone())
            .await?;
        read(&answer)
    }
}

fn read<T: DeserializeOwned>(answer: &str) -> Result<T, Error> {
    serde_json::from_str(answer).map_err(|_| Error::Answer(answer.to_owned()))
}
