//! Tenants and their keys, for the operator and for authentication.

use crate::{
    Page, Store,
    column::signed,
    error::{Entity, Error},
    tenant::{
        keys,
        retention::Retention,
        tenants::{self, TENANT_COLUMNS, Tenant},
    },
};
use domain::{
    ids::TenantId,
    limits,
    policy::{quota::TenantQuota, role::Role},
};
use sqlx::{AssertSqlSafe, Row as _};

/// A change of a tenant's limits. A `None` leaves the value unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantPatch {
    /// Its maximum of concurrent loops.
    pub running_max: Option<u32>,
    /// Its share of the slots.
    pub weight: Option<u32>,
    /// For how many days its sessions are kept.
    pub retention: Retention,
    /// How much it may store.
    pub quota: TenantQuota,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOwner {
    pub tenant: Tenant,
    pub name: String,
    /// Its public first part.
    pub prefix: String,
    /// What the key may do.
    pub role: Role,
}

impl Store {
    /// Finds the owner of the key with this SHA-256; `None` for an unknown or revoked key.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_key(&self, secret_sha256: &[u8]) -> Result<Option<KeyOwner>, Error> {
        let sql = format!(
            "select {TENANT_COLUMNS}, key_name, prefix, role from tenant join (
               select tenant_id, name as key_name, prefix, role from api_key where secret_sha256 = $1 and revoked_at is null) k on k.tenant_id = id
              where deleted_at is null"
        );
        let row = sqlx::query(AssertSqlSafe(sql)).bind(secret_sha256).fetch_optional(&self.system).await?;
        let owner = |row: &sqlx::postgres::PgRow| {
            let (tenant, name) = (tenants::from_row(row)?, row.try_get("key_name")?);
            Ok::<_, sqlx::Error>(KeyOwner {
                tenant,
                name,
                prefix: row.try_get("prefix")?,
                role: keys::role(row)?,
            })
        };
        Ok(row.as_ref().map(owner).transpose()?)
    }

    /// Returns those of these keys, by their SHA-256, that are valid.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_valid_keys(&self, keys: &[[u8; 32]]) -> Result<Vec<Vec<u8>>, Error> {
        let valid = sqlx::query_scalar(
            "select secret_sha256 from api_key k join tenant t on t.id = k.tenant_id
              where secret_sha256 = any($1) and revoked_at is null and deleted_at is null",
        );
        Ok(valid
            .bind(keys.iter().map(<[u8; 32]>::as_slice).collect::<Vec<_>>())
            .fetch_all(&self.system)
            .await?)
    }

    /// Creates a tenant, or returns the existing one with that name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn create_tenant(&self, id: TenantId, name: &str) -> Result<Tenant, Error> {
        let sql = format!(
            "insert into tenant (id, name, running_max) values ($1, $2, $3)
             on conflict (name) do update set name = excluded.name returning {TENANT_COLUMNS}"
        );
        let mut tx = self.begin_system().await?;
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(id.0)
            .bind(name)
            .bind(i32::try_from(limits::TENANT_RUNNING_MAX).unwrap_or(i32::MAX))
            .fetch_one(&mut *tx)
            .await?;
        let tenant = tenants::from_row(&row)?;
        tx.commit().await?;
        Ok(tenant)
    }

    /// Lists tenants by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_tenants(&self, page: &Page) -> Result<Vec<Tenant>, Error> {
        let sql = format!(
            "select {TENANT_COLUMNS} from tenant where name > $1 and deleted_at is null order by name limit $2"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(page.cursor.as_deref().unwrap_or_default())
            .bind(page.limit())
            .fetch_all(&self.system)
            .await?;
        Ok(rows.iter().map(tenants::from_row).collect::<Result<_, _>>()?)
    }

    /// Changes the limits of a tenant.
    ///
    /// # Errors
    /// `NotFound`; `Db`.
    pub async fn update_tenant(&self, tenant: TenantId, patch: TenantPatch) -> Result<Tenant, Error> {
        let number = |value: Option<u32>| value.map(|value| i32::try_from(value).unwrap_or(i32::MAX));
        let ([idle_days, archived_days], quota) = (patch.retention.columns(), patch.quota);
        let sql = format!(
            "update tenant set running_max = coalesce($2, running_max), weight = coalesce($3, weight),
                    keep_idle_days = coalesce($4, keep_idle_days), keep_archived_days = coalesce($5, keep_archived_days),
                    sessions_max = coalesce($6, sessions_max), projects_max = coalesce($7, projects_max),
                    stored_bytes_max = coalesce($8, stored_bytes_max)
              where id = $1 and deleted_at is null returning {TENANT_COLUMNS}"
        );
        let mut tx = self.begin_system().await?;
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(number(patch.running_max))
            .bind(number(patch.weight))
            .bind(idle_days)
            .bind(archived_days)
            .bind(quota.sessions.map(signed))
            .bind(quota.projects.map(signed))
            .bind(quota.stored_bytes.map(signed))
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Tenant))?;
        let tenant = tenants::from_row(&row)?;
        tx.commit().await?;
        Ok(tenant)
    }
}
