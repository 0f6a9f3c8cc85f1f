//! A tenant's view of itself.

use crate::{
    Store,
    column::{timestamp, unsigned},
    error::{Entity, Error},
    tenant::retention::Retention,
};
use domain::{
    ids::{TenantId, Timestamp},
    policy::quota::TenantQuota,
};
use sqlx::{AssertSqlSafe, Row as _};

/// A customer: the owner of sessions, keys and projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    /// Its unique name.
    pub name: String,
    /// Maximum concurrent loops; further sessions wait for a slot.
    pub running_max: u32,
    /// Its share of the slots while other tenants also have work.
    pub weight: u32,
    /// For how long its sessions are kept, where that differs from the platform.
    pub retention: Retention,
    /// How much it may store, where that differs from the platform.
    pub quota: TenantQuota,
    pub created_at: Timestamp,
}

/// Reads a row of `tenant`.
pub(crate) fn from_row(row: &sqlx::postgres::PgRow) -> Result<Tenant, sqlx::Error> {
    Ok(Tenant {
        id: TenantId(row.try_get("id")?),
        name: row.try_get("name")?,
        running_max: u32::try_from(row.try_get::<i32, _>("running_max")?).unwrap_or(0),
        weight: u32::try_from(row.try_get::<i32, _>("weight")?).unwrap_or(1),
        retention: Retention {
            idle_days: days(row, "keep_idle_days")?,
            archived_days: days(row, "keep_archived_days")?,
        },
        quota: TenantQuota {
            sessions: amount(row, "sessions_max")?,
            projects: amount(row, "projects_max")?,
            stored_bytes: amount(row, "stored_bytes_max")?,
        },
        created_at: timestamp(row.try_get("created_at")?),
    })
}

/// The columns that [`from_row`] reads.
pub(crate) const TENANT_COLUMNS: &str = "id, name, running_max, weight, keep_idle_days, keep_archived_days,
    sessions_max, projects_max, stored_bytes_max, created_at";

fn days(row: &sqlx::postgres::PgRow, column: &str) -> Result<Option<u32>, sqlx::Error> {
    Ok(row.try_get::<Option<i32>, _>(column)?.and_then(|days| u32::try_from(days).ok()))
}

fn amount(row: &sqlx::postgres::PgRow, column: &str) -> Result<Option<u64>, sqlx::Error> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(unsigned))
}

impl Store {
    /// Returns the tenant.
    ///
    /// # Errors
    /// `NotFound`, also if it is deleted; `Db`.
    pub async fn get_tenant(&self, tenant: TenantId) -> Result<Tenant, Error> {
        let sql = format!("select {TENANT_COLUMNS} from tenant where id = $1 and deleted_at is null");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0);
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        let row = row.ok_or(Error::NotFound(Entity::Tenant))?;
        Ok(from_row(&row)?)
    }
}
