//! API keys: a public prefix and the SHA-256 of the whole key. The key itself is never stored.

use crate::{
    Page, Store,
    column::timestamp,
    error::{Entity, Error},
};
use domain::{
    ids::{TenantId, Timestamp},
    policy::role::Role,
};
use sqlx::Row as _;

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its public first part.
    pub prefix: String,
    /// Its name, for people.
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

fn from_row(row: &sqlx::postgres::PgRow) -> Result<Key, sqlx::Error> {
    Ok(Key {
        prefix: row.try_get("prefix")?,
        name: row.try_get("name")?,
        role: role(row)?,
        created_at: timestamp(row.try_get("created_at")?),
        revoked_at: row.try_get::<Option<_>, _>("revoked_at")?.map(timestamp),
    })
}

/// Reads the column `role`. A role that a newer version wrote allows the least.
pub(crate) fn role(row: &sqlx::postgres::PgRow) -> Result<Role, sqlx::Error> {
    Ok(Role::of(row.try_get("role")?).unwrap_or(Role::Viewer))
}

impl Store {
    /// Stores a key.
    ///
    /// # Errors
    /// `Db`, also for an existing prefix or secret.
    pub async fn create_key(
        &self,
        tenant: TenantId,
        prefix: &str,
        secret_sha256: &[u8],
        name: &str,
        role: Role,
    ) -> Result<Key, Error> {
        let insert = sqlx::query(
            "insert into api_key (tenant_id, prefix, secret_sha256, name, role) values ($1, $2, $3, $4, $5)
             returning prefix, name, role, created_at, revoked_at",
        )
        .bind(tenant.0)
        .bind(prefix)
        .bind(secret_sha256)
        .bind(name)
        .bind(role.as_str());
        let mut tx = self.begin(tenant).await?;
        let key = from_row(&insert.fetch_one(&mut *tx).await?)?;
        tx.commit().await?;
        Ok(key)
    }

    /// Lists keys by prefix; the cursor is the last prefix.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_keys(&self, tenant: TenantId, page: &Page) -> Result<Vec<Key>, Error> {
        let query = sqlx::query(
            "select prefix, name, role, created_at, revoked_at from api_key
              where tenant_id = $1 and prefix > $2 order by prefix limit $3",
        )
        .bind(tenant.0)
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        Ok(rows.iter().map(from_row).collect::<Result<_, _>>()?)
    }

    /// Revokes a key at once. Revoking it again has no effect.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn revoke_key(&self, tenant: TenantId, prefix: &str) -> Result<(), Error> {
        let update = sqlx::query(
            "update api_key set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and prefix = $2",
        )
        .bind(tenant.0)
        .bind(prefix);
        let mut tx = self.begin(tenant).await?;
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err(Error::NotFound(Entity::Key));
        }
        Ok(tx.commit().await?)
    }
}
