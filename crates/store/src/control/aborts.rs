//! Untaken aborts of sessions that no living worker owns.

use super::candidate::{SessionRef, session_ref};
use crate::{
    Store,
    error::Error,
    phase::{RUNNABLE, RUNNING},
};
use domain::ids::{SessionId, TenantId};
use sqlx::AssertSqlSafe;

/// The aborted sessions to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerFilter {
    /// Only sessions without an owner.
    Unowned,
    /// Also sessions of dead workers.
    UnownedOrDead,
}

impl Store {
    /// Lists sessions without a loop that have an untaken abort, because closing them must not wait for a slot. The order is
    /// random: sessions that workers refuse must not hide the others.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_aborted(&self, owners: OwnerFilter, limit: i64) -> Result<Vec<SessionRef>, Error> {
        let rows = sqlx::query(AssertSqlSafe(format!(
            "select tenant_id, session_id from session_run
              where cancel_seq > input_ack
                and (phase = {RUNNABLE} or (phase = {RUNNING} and $2 and not coalesce(worker_alive(owner), false)))
              order by random() limit $1")))
        .bind(limit)
        .bind(owners == OwnerFilter::UnownedOrDead)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(session_ref).collect()
    }

    /// Says whether a session without a loop has an untaken abort.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_aborted(&self, tenant: TenantId, session: &SessionId) -> Result<bool, Error> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "select 1 from session_run
              where tenant_id = $1 and session_id = $2 and phase = {RUNNABLE} and cancel_seq > input_ack"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&self.system)
        .await?;
        Ok(row.is_some())
    }
}
