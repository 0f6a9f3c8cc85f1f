//! Tenants and their keys, for the operator and for authentication.

use crate::{
    Page, Store,
    error::{Entity, Error},
    tenant::tenants::{self, Tenant},
};
use domain::{ids::TenantId, limits};
use sqlx::Row as _;

impl Store {
    /// Finds the tenant and the name of the key with this SHA-256; `None` for an unknown or revoked key.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_key(&self, secret_sha256: &[u8]) -> Result<Option<(Tenant, String)>, Error> {
        let row = sqlx::query(
            "select t.id, t.name, t.running_max, t.weight, t.created_at, k.name as key_name from api_key k join tenant t on t.id = k.tenant_id
              where k.secret_sha256 = $1 and k.revoked_at is null and t.deleted_at is null",
        )
        .bind(secret_sha256)
        .fetch_optional(&self.system)
        .await?;
        Ok(row
            .map(|row| Ok::<_, sqlx::Error>((tenants::from_row(&row)?, row.try_get("key_name")?)))
            .transpose()?)
    }

    /// Creates a tenant, or returns the existing one with that name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn create_tenant(&self, id: TenantId, name: &str) -> Result<Tenant, Error> {
        let row = sqlx::query(
            "insert into tenant (id, name, running_max) values ($1, $2, $3)
             on conflict (name) do update set name = excluded.name returning id, name, running_max, weight, created_at",
        )
        .bind(id.0)
        .bind(name)
        .bind(i32::try_from(limits::TENANT_RUNNING_MAX).unwrap_or(i32::MAX))
        .fetch_one(&self.system)
        .await?;
        Ok(tenants::from_row(&row)?)
    }

    /// Lists tenants by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_tenants(&self, page: &Page) -> Result<Vec<Tenant>, Error> {
        let rows = sqlx::query(
            "select id, name, running_max, weight, created_at from tenant where name > $1 and deleted_at is null order by name limit $2",
        )
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&self.system)
        .await?;
        Ok(rows.iter().map(tenants::from_row).collect::<Result<_, _>>()?)
    }

    /// Changes a tenant's maximum of concurrent loops and its share of the slots; a `None` leaves the value
    /// unchanged.
    ///
    /// # Errors
    /// `NotFound`; `Db`.
    pub async fn update_tenant(
        &self,
        tenant: TenantId,
        running_max: Option<u32>,
        weight: Option<u32>,
    ) -> Result<Tenant, Error> {
        let number = |value: Option<u32>| value.map(|value| i32::try_from(value).unwrap_or(i32::MAX));
        let row = sqlx::query(
            "update tenant set running_max = coalesce($2, running_max), weight = coalesce($3, weight)
              where id = $1 and deleted_at is null returning id, name, running_max, weight, created_at",
        )
        .bind(tenant.0)
        .bind(number(running_max))
        .bind(number(weight))
        .fetch_optional(&self.system)
        .await?
        .ok_or(Error::NotFound(Entity::Tenant))?;
        Ok(tenants::from_row(&row)?)
    }
}
