//! The terminals whose program may still run, for gateways that did not start them. They are in Redis and may be lost; then a gateway knows only
//! terminals that start while it has subscribers.

use crate::{Bus, error::Error};
use domain::ids::{TenantId, pty::PtyId};

/// How long a terminal is kept after the newest one of its tenant started; seconds. No program in a terminal runs for more than a day.
const TERMINALS_LIFE_S: i64 = 25 * 3_600;

impl Bus {
    /// Notes that a program starts in a terminal.
    ///
    /// # Errors
    /// `Redis`: noted or not.
    pub async fn note_terminal(&self, tenant: TenantId, terminal: &PtyId) -> Result<(), Error> {
        let (mut redis, key) = (self.redis.clone(), self.terminals_key(tenant));
        let mut change = redis::pipe();
        change.atomic();
        change.cmd("SADD").arg(&key).arg(terminal.as_str()).ignore();
        change.cmd("EXPIRE").arg(&key).arg(TERMINALS_LIFE_S).ignore();
        Ok(change.query_async(&mut redis).await?)
    }

    /// Forgets a terminal: its program has ended, or it was removed.
    ///
    /// # Errors
    /// `Redis`: forgotten or not.
    pub async fn forget_terminal(&self, tenant: TenantId, terminal: &PtyId) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let forget = redis::cmd("SREM").arg(self.terminals_key(tenant)).arg(terminal.as_str()).to_owned();
        Ok(forget.query_async(&mut redis).await?)
    }

    /// Lists the noted terminals of a tenant, in any order.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn list_terminals(&self, tenant: TenantId) -> Result<Vec<PtyId>, Error> {
        let mut redis = self.redis.clone();
        let ids: Vec<String> =
            redis::cmd("SMEMBERS").arg(self.terminals_key(tenant)).query_async(&mut redis).await?;
        Ok(ids.into_iter().filter_map(|id| id.parse().ok()).collect())
    }

    fn terminals_key(&self, tenant: TenantId) -> String {
        format!("{}:terminals:{tenant}", self.namespace)
    }
}
