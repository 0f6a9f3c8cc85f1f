//! What tenants store: the operator's list, and the measurement of logs, which grow all the time.

use super::candidate::{SessionRef, session_ref};
use crate::{
    Page, Store,
    error::Error,
    tenant::{
        tenants::{self, TENANT_COLUMNS, Tenant},
        usage::{self, USAGE_COLUMNS},
    },
};
use domain::policy::quota::Usage;
use sqlx::AssertSqlSafe;

/// Events that one measurement reads: their sizes only, not their contents.
const STRETCH: i64 = 10_000;

impl Store {
    /// Lists what tenants store, by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_usage(&self, page: &Page) -> Result<Vec<(Tenant, Usage)>, Error> {
        let sql = format!(
            "select {TENANT_COLUMNS}, {USAGE_COLUMNS} from tenant t where name > $1 and deleted_at is null order by name limit $2"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(page.cursor.as_deref().unwrap_or_default())
            .bind(page.limit())
            .fetch_all(&self.system)
            .await?;
        let entries = rows.iter().map(|row| Ok((tenants::from_row(row)?, usage::usage(row)?)));
        Ok(entries.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Lists at most `limit` sessions whose log has grown since it was measured, those that grew most first.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_unmeasured(&self, limit: i64) -> Result<Vec<SessionRef>, Error> {
        let rows = sqlx::query(
            "select tenant_id, session_id from session_run where measured_seq < event_seq
              order by event_seq - measured_seq desc limit $1",
        );
        rows.bind(limit).fetch_all(&self.system).await?.iter().map(session_ref).collect()
    }

    /// Measures the next stretch of a session's log. Returns false if nothing was left, or if another worker was faster.
    ///
    /// # Errors
    /// `Db`.
    pub async fn measure_log(&self, session: &SessionRef) -> Result<bool, Error> {
        // The sum is known before the row is locked, so a loop that writes does not wait for it.
        let update = sqlx::query(
            "with run as materialized (
               select measured_seq, least(measured_seq + $3, event_seq) as last from session_run
                where tenant_id = $1 and session_id = $2 and measured_seq < event_seq),
             size as materialized (
               select run.measured_seq, run.last, coalesce(sum(pg_column_size(e.properties)), 0)::bigint as bytes
                 from run left join session_event e on e.tenant_id = $1 and e.session_id = $2 and e.seq > run.measured_seq and e.seq <= run.last
                group by 1, 2)
             update session_run r set stored_bytes = r.stored_bytes + size.bytes, measured_seq = size.last from size
              where r.tenant_id = $1 and r.session_id = $2 and r.measured_seq = size.measured_seq",
        )
        .bind(session.tenant.0)
        .bind(session.session.as_str())
        .bind(STRETCH);
        Ok(self.statements(session.tenant).await?.run(update).await? > 0)
    }
}
