//! Tickets: one gateway gives a client a secret, and any gateway redeems it, once and soon. They are in Redis; a client whose
//! ticket is lost requests another one.

use crate::{Bus, error::Error};

/// Validity of a ticket in seconds, the same as OpenCode's: a page requests a ticket just before it connects.
pub const TICKET_LIFE_S: u64 = 60;

impl Bus {
    /// Stores the claim of a ticket.
    ///
    /// # Errors
    /// `Redis`: the ticket is not valid.
    pub async fn put_ticket(&self, ticket: &str, claim: &str) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let key = self.ticket_key(ticket);
        Ok(redis::cmd("SET").arg(key).arg(claim).arg("EX").arg(TICKET_LIFE_S).query_async(&mut redis).await?)
    }

    /// Redeems a ticket: returns its claim, once.
    ///
    /// # Errors
    /// `Redis`: the ticket may or may not be redeemed.
    pub async fn take_ticket(&self, ticket: &str) -> Result<Option<String>, Error> {
        let mut redis = self.redis.clone();
        Ok(redis::cmd("GETDEL").arg(self.ticket_key(ticket)).query_async(&mut redis).await?)
    }

    fn ticket_key(&self, ticket: &str) -> String {
        format!("{}:ticket:{ticket}", self.namespace)
    }
}
