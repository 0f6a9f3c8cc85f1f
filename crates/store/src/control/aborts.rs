//! Aborts that no loop has taken, of sessions that no living worker owns.

use super::claimable::{Place, place};
use crate::{Store, error::Error};
use domain::ids::{SessionId, TenantId};

/// Whose aborted sessions are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Nobody's.
    None,
    /// Nobody's, and those of dead workers.
    NoneOrDead,
}

impl Store {
    /// Lists runnable sessions whose abort no loop has taken: closing them must not wait for a slot. In any order, another
    /// one each time: some that nobody takes must not hide the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_aborted(&self, owners: Owners, limit: i64) -> Result<Vec<Place>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id from session_run
              where cancel_seq > input_ack and (phase = 1 or (phase = 2 and $2 and not coalesce(worker_alive(owner), false)))
              order by random() limit $1",
        )
        .bind(limit)
        .bind(owners == Owners::NoneOrDead)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(place).collect()
    }

    /// Says whether a session without a loop has an abort that no loop has taken.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_aborted(&self, tenant: TenantId, session: &SessionId) -> Result<bool, Error> {
        let row = sqlx::query(
            "select 1 from session_run
              where tenant_id = $1 and session_id = $2 and phase = 1 and cancel_seq > input_ack",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&self.system)
        .await?;
        Ok(row.is_some())
    }
}
