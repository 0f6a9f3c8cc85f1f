//! Sealed secrets. This crate stores sealed bytes and cannot open them.

use super::{BrokerStore, keys::lock_key};
use crate::{
    Tx,
    column::{signed, unsigned},
    error::{Entity, Error},
    tenant::secrets::{Secret, from_row},
};
use domain::{ids::TenantId, limits::SECRETS_MAX, secret::SecretAddress};
use sqlx::Row as _;

/// A value as it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// The identity of the deployment's key.
    pub key_id: String,
    /// The key of the value, under that of the deployment.
    pub sealed_key: Vec<u8>,
    /// The value, under its own key.
    pub ciphertext: Vec<u8>,
}

/// A stored value with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVersion {
    /// The version that the value was sealed for.
    pub version: u64,
    /// The value.
    pub sealed: SealedSecret,
}

/// A change of a secret that has its version, and waits for the value that is sealed for this version. Dropped: nothing is stored.
#[derive(Debug)]
pub struct SecretChange {
    tx: Tx,
    tenant: TenantId,
    address: SecretAddress,
    version: u64,
    key_id: Option<String>,
}

impl BrokerStore {
    /// Begins the change of a secret and gives it its version. Other changes of the tenant wait until this one has ended.
    ///
    /// # Errors
    /// `NotFound`: there is no such tenant; `TooManySecrets`; `Db`.
    pub async fn begin_change(
        &self,
        tenant: TenantId,
        address: SecretAddress,
    ) -> Result<SecretChange, Error> {
        let mut tx = self.0.begin(tenant).await?;
        let row = sqlx::query(
            "insert into secret_counter as c (tenant_id, last_version) values ($1, 1)
             on conflict (tenant_id) do update set last_version = c.last_version + 1 returning last_version",
        )
        .bind(tenant.0)
        .fetch_one(&mut *tx)
        .await
        .map_err(missing)?;
        let version = unsigned(row.try_get("last_version")?);
        let others: i64 = sqlx::query_scalar(
            "select count(*) from secret where tenant_id = $1 and (scope, name) <> ($2, $3)",
        )
        .bind(tenant.0)
        .bind(address.scope())
        .bind(address.name.as_str())
        .fetch_one(&mut *tx)
        .await?;
        if others >= SECRETS_MAX {
            return Err(Error::TooManySecrets(others));
        }
        let key_id = lock_key(&mut tx).await?;
        Ok(SecretChange { tx, tenant, address, version, key_id })
    }

    /// Returns the value of a secret, and notes that it is used.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn use_secret(
        &self,
        tenant: TenantId,
        address: &SecretAddress,
    ) -> Result<SecretVersion, Error> {
        let mut tx = self.0.begin(tenant).await?;
        let row = sqlx::query(
            "update secret set last_used_at = now() where tenant_id = $1 and scope = $2 and name = $3
             returning version, key_id, sealed_key, ciphertext",
        )
        .bind(tenant.0)
        .bind(address.scope())
        .bind(address.name.as_str())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Secret))?;
        let sealed = SealedSecret {
            key_id: row.try_get("key_id")?,
            sealed_key: row.try_get("sealed_key")?,
            ciphertext: row.try_get("ciphertext")?,
        };
        let version = unsigned(row.try_get("version")?);
        tx.commit().await?;
        Ok(SecretVersion { version, sealed })
    }
}

impl SecretChange {
    /// The version that the value must be sealed for.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The identity of the key that must seal the value. `None`: no broker has noted one.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Stores the sealed value in the name of `by`. It replaces the earlier version, which is gone.
    ///
    /// # Errors
    /// `NotFound`: there is no such project. `Db`: stored or not.
    pub async fn finish_change(self, sealed: &SealedSecret, by: &str) -> Result<Secret, Error> {
        let Self { mut tx, tenant, address, version, .. } = self;
        let row = sqlx::query(
            "insert into secret as s (tenant_id, project_id, scope, name, version, key_id, sealed_key, ciphertext, created_by)
             values ($1, $2, coalesce($2, ''), $3, $4, $5, $6, $7, $8)
             on conflict on constraint secret_pk do update
                set version = excluded.version, key_id = excluded.key_id, sealed_key = excluded.sealed_key,
                    ciphertext = excluded.ciphertext, created_at = now(), created_by = excluded.created_by, last_used_at = null
             returning s.project_id, s.name, s.version, s.created_at, s.created_by, s.last_used_at",
        )
        .bind(tenant.0)
        .bind(address.project.as_ref().map(|project| project.as_str()))
        .bind(address.name.as_str())
        .bind(signed(version))
        .bind(&sealed.key_id)
        .bind(&sealed.sealed_key)
        .bind(&sealed.ciphertext)
        .bind(by)
        .fetch_one(&mut *tx)
        .await
        .map_err(missing)?;
        let secret = from_row(&row)?;
        tx.commit().await?;
        Ok(secret)
    }
}

/// The error of a statement whose tenant or project may not exist.
fn missing(error: sqlx::Error) -> Error {
    match error.as_database_error().and_then(|error| error.constraint()) {
        Some("secret_project_fk") => Error::NotFound(Entity::Project),
        Some("secret_tenant_fk" | "secret_counter_tenant_fk") => Error::NotFound(Entity::Tenant),
        Some(_) | None => Error::Db(error),
    }
}
