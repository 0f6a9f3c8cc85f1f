//! The keys of the deployment by their identities: which one seals, and which secrets older ones have sealed. The keys themselves never reach Postgres.

use super::BrokerStore;
use crate::{
    Page, Tx,
    column::{signed, unsigned},
    error::Error,
    tenant::secrets::address,
};
use domain::{ids::TenantId, secret::SecretAddress};
use sqlx::{Row as _, postgres::PgRow};

/// The keys that open the secrets of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The identity of the key that seals.
    pub key_id: String,
    /// Those of keys that sealed before it, while secrets may still need them.
    pub older_key_ids: Vec<String>,
}

/// The key of one value, as it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    /// The identity of the deployment's key.
    pub key_id: String,
    /// The key of the value, under that of the deployment.
    pub bytes: Vec<u8>,
}

/// A secret whose key is to be sealed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderSecret {
    /// What names it.
    pub address: SecretAddress,
    /// Its version.
    pub version: u64,
    /// Its key, under an older key of the deployment.
    pub key: SealedKey,
}

impl OlderSecret {
    /// The cursor after this entry of a list.
    pub fn cursor(&self) -> String {
        format!("{}/{}", self.address.scope(), self.address.name)
    }
}

impl BrokerStore {
    /// Notes a key as the one that seals, if its broker has all keys that are noted: this one and `further`. Returns what is noted then. Changes of secrets
    /// that are under way end before.
    ///
    /// # Errors
    /// `Db`.
    pub async fn register_key(&self, key_id: &str, further: &[String]) -> Result<KeyRecord, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        sqlx::query("insert into secret_key (key_id) values ($1) on conflict do nothing")
            .bind(key_id)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "update secret_key
                set key_id = $1::text, older_key_ids = array_remove(array_append(older_key_ids, key_id), $1::text)
              where key_id <> $1::text and key_id = any($2::text[])
                and older_key_ids <@ array_append($2::text[], $1::text)",
        )
        .bind(key_id)
        .bind(further)
        .execute(&mut *tx)
        .await?;
        let row = sqlx::query("select key_id, older_key_ids from secret_key").fetch_one(&mut *tx).await?;
        let record = record(&row)?;
        tx.commit().await?;
        Ok(record)
    }

    /// Returns what is noted. `None`: no broker has started yet.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_keys(&self) -> Result<Option<KeyRecord>, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let row =
            sqlx::query("select key_id, older_key_ids from secret_key").fetch_optional(&mut *tx).await?;
        row.as_ref().map(record).transpose()
    }

    /// Forgets the older keys, because no secret needs them. Returns whether it did: not if a broker has noted another key since `noted` was read.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_older_keys(&self, noted: &KeyRecord) -> Result<bool, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let done = sqlx::query(
            "update secret_key set older_key_ids = '{}' where key_id = $1 and older_key_ids = $2::text[]",
        )
        .bind(&noted.key_id)
        .bind(&noted.older_key_ids)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Lists tenants that have or had secrets, in the order of their ids, after one of them.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_secret_tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<TenantId>, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let ids: Vec<uuid::Uuid> = sqlx::query_scalar(
            "select tenant_id from secret_counter where $1::uuid is null or tenant_id > $1
              order by tenant_id limit $2",
        )
        .bind(after.map(|tenant| tenant.0))
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await?;
        Ok(ids.into_iter().map(TenantId).collect())
    }

    /// Lists the secrets of a tenant that other keys than this one have sealed.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_older_secrets(
        &self,
        tenant: TenantId,
        key_id: &str,
        page: &Page,
    ) -> Result<Vec<OlderSecret>, Error> {
        let mut tx = self.0.begin(tenant).await?;
        let cursor = page.cursor.as_deref().unwrap_or_default();
        let (scope, name) = cursor.split_once('/').unwrap_or_default();
        let rows = sqlx::query(
            "select project_id, name, version, key_id, sealed_key from secret
              where tenant_id = $1 and (scope, name) > ($2, $3) and key_id <> $4
              order by scope, name limit $5",
        )
        .bind(tenant.0)
        .bind(scope)
        .bind(name)
        .bind(key_id)
        .bind(page.limit())
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(older_secret).collect()
    }

    /// Puts a key that was sealed again in the place of the same key. Returns whether it did: not if the secret has changed since, or if another key seals.
    ///
    /// # Errors
    /// `Db`: replaced or not; both open the value.
    pub async fn replace_key(
        &self,
        tenant: TenantId,
        secret: &OlderSecret,
        key: &SealedKey,
    ) -> Result<bool, Error> {
        let mut tx = self.0.begin(tenant).await?;
        if lock_key(&mut tx).await?.as_ref() != Some(&key.key_id) {
            return Ok(false);
        }
        let done = sqlx::query(
            "update secret set key_id = $5, sealed_key = $6
              where tenant_id = $1 and scope = $2 and name = $3 and version = $4 and key_id = $7",
        )
        .bind(tenant.0)
        .bind(secret.address.scope())
        .bind(secret.address.name.as_str())
        .bind(signed(secret.version))
        .bind(&key.key_id)
        .bind(&key.bytes)
        .bind(&secret.key.key_id)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected() == 1)
    }
}

/// The identity of the key that seals, which stays the same until the transaction ends. So whoever notes another key knows that nothing is sealed with
/// this one afterwards.
pub(super) async fn lock_key(tx: &mut Tx) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar("select key_id from secret_key for share").fetch_optional(&mut **tx).await?)
}

fn record(row: &PgRow) -> Result<KeyRecord, Error> {
    Ok(KeyRecord { key_id: row.try_get("key_id")?, older_key_ids: row.try_get("older_key_ids")? })
}

fn older_secret(row: &PgRow) -> Result<OlderSecret, Error> {
    Ok(OlderSecret {
        address: address(row)?,
        version: unsigned(row.try_get("version")?),
        key: SealedKey { key_id: row.try_get("key_id")?, bytes: row.try_get("sealed_key")? },
    })
}
