//! Workers' clean-up for all tenants, and the check whether worker leases can be trusted.

use crate::{Store, column::signed, error::Error, phase::RUNNING};
use domain::limits;
use sqlx::{AssertSqlSafe, Row as _};

impl Store {
    /// Deletes the workers whose lease ended more than `limits::WORKER_KEPT_MS` ago and that own no session. Returns their
    /// number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_dead_workers(&self) -> Result<u64, Error> {
        let done = sqlx::query(AssertSqlSafe(format!(
            "delete from worker w where w.lease_until < now() - $1 * interval '1 millisecond'
                and not exists (select 1 from session_run r where r.phase = {RUNNING} and r.owner = w.incarnation)")))
        .bind(signed(limits::WORKER_KEPT_MS))
        .execute(&self.system)
        .await?;
        Ok(done.rows_affected())
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

    /// Deletes the tombstones older than `limits::TOMBSTONE_KEPT_MS`. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_deleted(&self) -> Result<u64, Error> {
        let done = sqlx::query(
            "delete from session_tombstone where deleted_at < now() - $1 * interval '1 millisecond'",
        )
        .bind(signed(limits::TOMBSTONE_KEPT_MS))
        .execute(&self.system)
        .await?;
        Ok(done.rows_affected())
    }
}
