//! What a tenant stores.

use crate::{Store, column::unsigned, error::Error};
use domain::{ids::TenantId, policy::quota::Usage};
use sqlx::{AssertSqlSafe, Row as _};

/// The columns that [`usage`] reads, for a row `t` of `tenant`.
pub(crate) const USAGE_COLUMNS: &str = "
    (select count(*) from session s where s.tenant_id = t.id) as sessions,
    (select count(*) from project p where p.tenant_id = t.id) as projects,
    (select coalesce(sum(stored_bytes), 0)::bigint from session_run r where r.tenant_id = t.id)
      + (select coalesce(sum(size_bytes), 0)::bigint from bundle b where b.tenant_id = t.id) as stored_bytes";

/// Reads [`USAGE_COLUMNS`].
pub(crate) fn usage(row: &sqlx::postgres::PgRow) -> Result<Usage, sqlx::Error> {
    let number = |column| row.try_get::<i64, _>(column).map(unsigned);
    Ok(Usage {
        sessions: number("sessions")?,
        projects: number("projects")?,
        stored_bytes: number("stored_bytes")?,
    })
}

impl Store {
    /// Returns what a tenant stores. Bytes of logs count once a worker has measured them. Postgres counts the rows of the tenant: some 30 ms
    /// for 100,000 sessions.
    ///
    /// # Errors
    /// `Db`.
    pub async fn count_usage(&self, tenant: TenantId) -> Result<Usage, Error> {
        let sql = format!("select {USAGE_COLUMNS} from (select $1::uuid as id) t");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0);
        Ok(usage(&self.statements(tenant).await?.fetch_one(query).await?)?)
    }
}
