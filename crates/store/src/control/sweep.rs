//! Workers' clean-up for all tenants, and the check whether worker leases can be trusted.

use crate::{
    Store,
    column::{signed, unsigned},
    error::Error,
    phase::RUNNING,
};
use domain::limits;
use sqlx::{AssertSqlSafe, Row as _};

impl Store {
    /// Deletes the workers whose lease ended more than `limits::WORKER_KEPT_MS` ago and that own no session. Returns their
    /// number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_dead_workers(&self) -> Result<u64, Error> {
        let result = sqlx::query(AssertSqlSafe(format!(
            "delete from worker w where w.lease_until < now() - $1 * interval '1 millisecond'
                and not exists (select 1 from session_run r where r.phase = {RUNNING} and r.owner = w.incarnation)")))
        .bind(signed(limits::WORKER_KEPT_MS))
        .execute(&self.system)
        .await?;
        Ok(result.rows_affected())
    }

    /// Says whether Postgres started more than `ms` milliseconds ago. Right after a start every lease looks expired.
    ///
    /// # Errors
    /// `Db`.
    pub async fn is_settled(&self, ms: u64) -> Result<bool, Error> {
        // A start in the future means that somebody has set the clock back.
        let row = sqlx::query(
            "select now() not between pg_postmaster_start_time()
                              and pg_postmaster_start_time() + $1 * interval '1 millisecond' as settled",
        )
        .bind(i32::try_from(ms).unwrap_or(i32::MAX))
        .fetch_one(&self.system)
        .await?;
        Ok(row.try_get("settled")?)
    }

    /// Deletes the tombstones older than `limits::TOMBSTONE_KEPT_MS`. Returns their number. From now on their ids can be used again, so
    /// new sessions of their tenants begin above their epochs, and above the next ones, with which the deletions fenced the sandbox.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_deleted(&self) -> Result<u64, Error> {
        let row = sqlx::query(
            "with old as (
               delete from session_tombstone where deleted_at < now() - $1 * interval '1 millisecond'
               returning tenant_id, epoch),
             highest as (select tenant_id, max(epoch) as epoch from old group by tenant_id),
             raised as (
               update tenant t set epoch_floor = greatest(t.epoch_floor, h.epoch + 2) from highest h
                where t.id = h.tenant_id)
             select count(*) as deleted from old",
        )
        .bind(signed(limits::TOMBSTONE_KEPT_MS))
        .fetch_one(&self.system)
        .await?;
        Ok(unsigned(row.try_get("deleted")?))
    }
}
