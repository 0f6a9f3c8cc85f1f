//! The keys of the deployment by their identities: which one seals, and which secrets older ones have sealed. The keys themselves never reach Postgres.

use super::BrokerStore;
use crate::{
    Page, Tx,
    column::{signed, unsigned},
    error::Error,
    tenant::secrets::address,
};
use domain::{ids::TenantId, secret::SecretAddress};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

/// The lock of Postgres that one broker of a deployment holds while it seals secrets again.
const RESEAL_LOCK: i64 = 0x666c_6f74_7365_616c;

/// The keys that open the secrets of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The identity of the key that seals.
    pub key_id: String,
    /// Those of keys that sealed before it, while secrets may still need them.
    pub older_key_ids: Vec<String>,
    /// How often the key that seals has changed.
    pub changes: u64,
    /// A known text under each of these keys, and under those that a broker has for the next change. A key that was noted by an earlier version may have
    /// none.
    pub canaries: Vec<SealedKey>,
}

impl KeyRecord {
    /// The identities of all these keys, that of the key that seals first.
    pub fn key_ids(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.key_id).chain(&self.older_key_ids)
    }
}

/// The key of one value, as it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    /// The identity of the deployment's key.
    pub key_id: String,
    /// The key of the value, under that of the deployment.
    pub bytes: Vec<u8>,
}

/// The right to seal secrets again, which one broker has at a time. It ends when it is dropped, or when its connection breaks: then two brokers may do the same work, and
/// nothing else happens.
#[derive(Debug)]
pub struct ResealClaim(#[expect(dead_code, reason = "held until it is dropped")] PgConnection);

/// A secret whose key the broker must seal again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderSecret {
    pub address: SecretAddress,
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
    /// Notes the key of `canary` as the one that seals, if its broker has all keys of the record: this one and `further`. Keeps the canary, a known text
    /// under the key, unless the key has one. Waits for changes of secrets that are under way. Returns the new record.
    ///
    /// # Errors
    /// `Db`.
    pub async fn register_key(&self, canary: &SealedKey, further: &[String]) -> Result<KeyRecord, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        sqlx::query("insert into secret_key (key_id) values ($1) on conflict do nothing")
            .bind(&canary.key_id)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "update secret_key
                set key_id = $1::text, older_key_ids = array_remove(array_append(older_key_ids, key_id), $1::text),
                    changes = changes + 1
              where key_id <> $1::text and key_id = any($2::text[])
                and older_key_ids <@ array_append($2::text[], $1::text)",
        )
        .bind(&canary.key_id)
        .bind(further)
        .execute(&mut *tx)
        .await?;
        if lock_key(&mut tx).await?.as_ref() == Some(&canary.key_id) {
            insert_canary(&mut tx, canary).await?;
        }
        let record = find(&mut tx).await?.ok_or(Error::Db(sqlx::Error::RowNotFound))?;
        tx.commit().await?;
        Ok(record)
    }

    /// Keeps the canary of a key that may become the one that seals, unless the key has one. Brokers whose key of this name is another one then notice it
    /// when they start.
    ///
    /// # Errors
    /// `Db`.
    pub async fn keep_canary(&self, canary: &SealedKey) -> Result<(), Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        insert_canary(&mut tx, canary).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns the record of the keys. `None`: no broker has started yet.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_keys(&self) -> Result<Option<KeyRecord>, Error> {
        find(&mut self.0.begin_without_tenant().await?).await
    }

    /// Forgets the older keys, because no secret needs them. Returns whether it did: not if the key that seals has changed since `noted` was read, also
    /// if it is the same again, because secrets may have been sealed with another key meanwhile.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_older_keys(&self, noted: &KeyRecord) -> Result<bool, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let done = sqlx::query("update secret_key set older_key_ids = '{}' where changes = $1")
            .bind(signed(noted.changes))
            .execute(&mut *tx)
            .await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        sqlx::query("delete from key_canary where key_id <> (select key_id from secret_key)")
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Claims the right to seal secrets again. `None`: another broker has it. The claim has a connection of its own, because a key service may take longer to answer than a
    /// transaction may last.
    ///
    /// # Errors
    /// `Db`.
    pub async fn claim_reseal(&self) -> Result<Option<ResealClaim>, Error> {
        let mut connection = self.0.connect_apart().await?;
        let is_free: bool = sqlx::query_scalar("select pg_try_advisory_lock($1)")
            .bind(RESEAL_LOCK)
            .fetch_one(&mut connection)
            .await?;
        Ok(is_free.then_some(ResealClaim(connection)))
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
        let cursor = page.cursor.as_deref().unwrap_or_default();
        let (scope, name) = cursor.split_once('/').unwrap_or_default();
        let query = sqlx::query(
            "select project_id, name, version, key_id, sealed_key from secret
              where tenant_id = $1 and (scope, name) > ($2, $3) and key_id <> $4
              order by scope, name limit $5",
        )
        .bind(tenant.0)
        .bind(scope)
        .bind(name)
        .bind(key_id)
        .bind(page.limit());
        let rows = self.0.statements(tenant).await?.fetch_all(query).await?;
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

/// Returns the identity of the key that seals, which stays the same until the transaction ends. A broker that notes another key waits for that end, so
/// nothing is sealed with this key afterwards.
pub(super) async fn lock_key(tx: &mut Tx) -> Result<Option<String>, Error> {
    Ok(sqlx::query_scalar("select key_id from secret_key for share").fetch_optional(&mut **tx).await?)
}

/// Keeps the canary of a key, unless the key has one.
async fn insert_canary(tx: &mut Tx, canary: &SealedKey) -> Result<(), Error> {
    sqlx::query("insert into key_canary (key_id, sealed_key) values ($1, $2) on conflict do nothing")
        .bind(&canary.key_id)
        .bind(&canary.bytes)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn find(tx: &mut Tx) -> Result<Option<KeyRecord>, Error> {
    let row = sqlx::query("select key_id, older_key_ids, changes from secret_key");
    let Some(row) = row.fetch_optional(&mut **tx).await? else { return Ok(None) };
    let canaries = sqlx::query("select key_id, sealed_key from key_canary order by key_id");
    let canaries = canaries.fetch_all(&mut **tx).await?;
    Ok(Some(KeyRecord {
        key_id: row.try_get("key_id")?,
        older_key_ids: row.try_get("older_key_ids")?,
        changes: unsigned(row.try_get("changes")?),
        canaries: canaries.iter().map(sealed_key).collect::<Result<_, _>>()?,
    }))
}

fn sealed_key(row: &PgRow) -> Result<SealedKey, Error> {
    Ok(SealedKey { key_id: row.try_get("key_id")?, bytes: row.try_get("sealed_key")? })
}

fn older_secret(row: &PgRow) -> Result<OlderSecret, Error> {
    Ok(OlderSecret {
        address: address(row)?,
        version: unsigned(row.try_get("version")?),
        key: sealed_key(row)?,
    })
}
