//! Sealed secrets. This crate stores sealed bytes and cannot open them.

use super::{BrokerStore, keys::lock_key};
use crate::{
    Actor, Tx,
    column::{signed, timestamp, unsigned},
    error::{Entity, Error},
    tenant::secrets::Secret,
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
    /// The version for which the broker sealed the value.
    pub version: u64,
    pub sealed: SealedSecret,
    /// The beginnings of the URLs of the servers that may get it. Empty in a change: those of the earlier version.
    pub urls: Vec<String>,
}

/// A change of a secret that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretChange {
    /// The version that the value must be sealed for.
    pub version: u64,
    /// The identity of the key that must seal the value. `None`: no broker has noted one.
    pub key_id: Option<String>,
}

impl BrokerStore {
    /// Begins the change of a secret and gives it its version. The change holds no lock, because a key service may seal the value: other changes go
    /// on, and a version that is never stored is skipped.
    ///
    /// # Errors
    /// `NotFound`: there is no such tenant; `TooManySecrets`; `Db`.
    pub async fn begin_change(
        &self,
        tenant: TenantId,
        address: &SecretAddress,
    ) -> Result<SecretChange, Error> {
        let mut tx = self.0.begin(tenant).await?;
        let version: i64 = sqlx::query_scalar(
            "insert into secret_counter as c (tenant_id, last_version) values ($1, 1)
             on conflict (tenant_id) do update set last_version = c.last_version + 1 returning last_version",
        )
        .bind(tenant.0)
        .fetch_one(&mut *tx)
        .await
        .map_err(missing)?;
        check_room(&mut tx, tenant, address).await?;
        let key_id = sqlx::query_scalar("select key_id from secret_key").fetch_optional(&mut *tx).await?;
        tx.commit().await?;
        Ok(SecretChange { version: unsigned(version), key_id })
    }

    /// Stores the sealed value in the name of `by`. It replaces the earlier version, which is gone. If a later change of the secret is stored already, that
    /// change has replaced this one at once. `None`: nothing is stored, because another key seals since the change began. No version is used twice, but
    /// after a deletion one may be stored that began before a later one.
    ///
    /// # Errors
    /// `NotFound`: there is no such project or tenant; `TooManySecrets`. `Db`: stored or not.
    pub async fn finish_change(
        &self,
        tenant: TenantId,
        address: &SecretAddress,
        value: &SecretVersion,
        by: &Actor,
    ) -> Result<Option<Secret>, Error> {
        let mut tx = self.0.begin(tenant).await?;
        by.act_in(&mut tx).await?;
        // Orders the changes of the tenant, so that together they do not store too many secrets.
        let created_at = sqlx::query_scalar::<_, time::OffsetDateTime>(
            "select now()::timestamptz(3) from secret_counter where tenant_id = $1 for update",
        )
        .bind(tenant.0)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Tenant))?;
        check_room(&mut tx, tenant, address).await?;
        let SecretVersion { version, sealed, urls } = value;
        if lock_key(&mut tx).await?.is_some_and(|key_id| key_id != sealed.key_id) {
            return Ok(None);
        }
        let stored: Option<Vec<String>> = sqlx::query_scalar(
            "insert into secret as s (tenant_id, project_id, scope, name, version, key_id, sealed_key, ciphertext, created_by, urls)
             values ($1, $2, coalesce($2, ''), $3, $4, $5, $6, $7, $8, $9)
             on conflict on constraint secret_pk do update
                set version = excluded.version, key_id = excluded.key_id, sealed_key = excluded.sealed_key,
                    ciphertext = excluded.ciphertext, created_at = now(), created_by = excluded.created_by, last_used_at = null,
                    urls = case when excluded.urls = '{}' then s.urls else excluded.urls end
              where s.version < excluded.version
             returning urls",
        )
        .bind(tenant.0)
        .bind(address.project.as_ref().map(|project| project.as_str()))
        .bind(address.name.as_str())
        .bind(signed(*version))
        .bind(&sealed.key_id)
        .bind(&sealed.sealed_key)
        .bind(&sealed.ciphertext)
        .bind(&by.name)
        .bind(urls)
        .fetch_optional(&mut *tx)
        .await
        .map_err(missing)?;
        tx.commit().await?;
        Ok(Some(Secret {
            address: address.clone(),
            version: *version,
            created_at: timestamp(created_at),
            created_by: by.name.clone(),
            last_used_at: None,
            urls: stored.unwrap_or_else(|| urls.clone()),
        }))
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
        let update = sqlx::query(
            "update secret set last_used_at = now() where tenant_id = $1 and scope = $2 and name = $3
             returning version, key_id, sealed_key, ciphertext, urls",
        )
        .bind(tenant.0)
        .bind(address.scope())
        .bind(address.name.as_str());
        let row = self.0.statements(tenant).await?.fetch_optional(update).await?;
        let row = row.ok_or(Error::NotFound(Entity::Secret))?;
        let sealed = SealedSecret {
            key_id: row.try_get("key_id")?,
            sealed_key: row.try_get("sealed_key")?,
            ciphertext: row.try_get("ciphertext")?,
        };
        let version = unsigned(row.try_get("version")?);
        Ok(SecretVersion { version, sealed, urls: row.try_get("urls")? })
    }
}

/// Checks that the tenant may have this secret in addition to its others.
async fn check_room(tx: &mut Tx, tenant: TenantId, address: &SecretAddress) -> Result<(), Error> {
    let others: i64 =
        sqlx::query_scalar("select count(*) from secret where tenant_id = $1 and (scope, name) <> ($2, $3)")
            .bind(tenant.0)
            .bind(address.scope())
            .bind(address.name.as_str())
            .fetch_one(&mut **tx)
            .await?;
    if others >= SECRETS_MAX { Err(Error::TooManySecrets(others)) } else { Ok(()) }
}

/// The error of a statement whose tenant or project may not exist.
fn missing(error: sqlx::Error) -> Error {
    match error.as_database_error().and_then(|error| error.constraint()) {
        Some("secret_project_fk") => Error::NotFound(Entity::Project),
        Some("secret_tenant_fk" | "secret_counter_tenant_fk") => Error::NotFound(Entity::Tenant),
        Some(_) | None => Error::Db(error),
    }
}
