//! Visits: the sessions that the clients with a key created, prompted or read last. Every gateway notes and reads them. They are in Redis and may be
//! lost; then the newest session of a directory counts.

use crate::{Bus, error::Error};
use domain::ids::{SessionId, TenantId};

/// How long visits are kept after the last one; seconds. A person may come back after a weekend.
const VISITS_LIFE_S: i64 = 7 * 24 * 3_600;
/// Visited sessions of a key that are kept. A client that shows a session reads its subtasks too, and a person works in a few directories at once.
const VISITS_MAX: isize = 64;

/// The clients with one key of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor<'a> {
    pub tenant: TenantId,
    /// The name of the key.
    pub key: &'a str,
}

impl Bus {
    /// Notes that a client visits a session.
    ///
    /// # Errors
    /// `Redis`: noted or not.
    pub async fn note_visit(&self, visitor: Visitor<'_>, session: &SessionId) -> Result<(), Error> {
        let (mut redis, key) = (self.redis.clone(), self.visits_key(visitor));
        let mut change = redis::pipe();
        change.atomic();
        change.cmd("LREM").arg(&key).arg(0).arg(session.as_str()).ignore();
        change.cmd("LPUSH").arg(&key).arg(session.as_str()).ignore();
        change.cmd("LTRIM").arg(&key).arg(0).arg(VISITS_MAX - 1).ignore();
        change.cmd("EXPIRE").arg(&key).arg(VISITS_LIFE_S).ignore();
        Ok(change.query_async(&mut redis).await?)
    }

    /// Lists the visited sessions, the last one first.
    ///
    /// # Errors
    /// `Redis`.
    pub async fn list_visits(&self, visitor: Visitor<'_>) -> Result<Vec<SessionId>, Error> {
        let (mut redis, key) = (self.redis.clone(), self.visits_key(visitor));
        let ids: Vec<String> =
            redis::cmd("LRANGE").arg(key).arg(0).arg(VISITS_MAX - 1).query_async(&mut redis).await?;
        Ok(ids.into_iter().filter_map(|id| id.parse().ok()).collect())
    }

    fn visits_key(&self, Visitor { tenant, key }: Visitor<'_>) -> String {
        format!("{}:visits:{tenant}:{key}", self.namespace)
    }
}
