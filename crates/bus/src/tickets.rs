//! Tickets: what one gateway promised to whoever brings a secret back, once and soon, and any gateway keeps. They are in Redis;
//! when that loses them, their holders ask for new ones.

use crate::{Bus, error::Error};

/// How long a ticket is good; seconds. As long as OpenCode's: a page asks for one just before it connects.
pub const TICKET_LIFE_S: u64 = 60;

impl Bus {
    /// Keeps what a ticket is good for.
    ///
    /// # Errors
    /// `Redis`: there is no such ticket then.
    pub async fn put_ticket(&self, ticket: &str, claim: &str) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let key = self.ticket_key(ticket);
        Ok(redis::cmd("SET").arg(key).arg(claim).arg("EX").arg(TICKET_LIFE_S).query_async(&mut redis).await?)
    }

    /// Redeems a ticket: gives what it is good for, once.
    ///
    /// # Errors
    /// `Redis`: redeemed or not.
    pub async fn take_ticket(&self, ticket: &str) -> Result<Option<String>, Error> {
        let mut redis = self.redis.clone();
        Ok(redis::cmd("GETDEL").arg(self.ticket_key(ticket)).query_async(&mut redis).await?)
    }

    fn ticket_key(&self, ticket: &str) -> String {
        format!("{}:ticket:{ticket}", self.namespace)
    }
}
