//! The App of this deployment at its forge, sealed, and the installations of tenants.

use super::{
    BrokerStore,
    keys::{SealedKey, lock_key},
    secrets::SealedSecret,
};
use crate::{
    column::{signed, unsigned},
    error::Error,
};
use domain::ids::TenantId;
use sqlx::{Row as _, postgres::PgRow};

/// What everybody may know of the App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeApp {
    /// Its number at the forge.
    pub app_id: u64,
    /// The name in the login of its comments.
    pub slug: String,
    /// Where the API begins, without a slash at its end.
    pub api_url: String,
    /// Where the pages and the repositories begin, without a slash at its end.
    pub web_url: String,
}

/// The App with its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedApp {
    pub app: ForgeApp,
    /// Counted up by each change. The credentials are sealed for it.
    pub version: u64,
    pub sealed: SealedSecret,
}

impl BrokerStore {
    /// Finds the App of this deployment.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_forge_app(&self) -> Result<Option<SealedApp>, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let query = sqlx::query(
            "select app_id, slug, api_url, web_url, version, key_id, sealed_key, ciphertext from forge_app",
        );
        let row = query.fetch_optional(&mut *tx).await?;
        tx.commit().await?;
        row.as_ref().map(sealed_app).transpose()
    }

    /// Stores the App in place of version `app.version - 1`. Returns false if another change came first.
    ///
    /// # Errors
    /// `Db`: stored or not.
    pub async fn put_forge_app(&self, app: &SealedApp, by: &str) -> Result<bool, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        let SealedApp { app: ForgeApp { app_id, slug, api_url, web_url }, version, sealed } = app;
        let stored = sqlx::query(
            "insert into forge_app as a (app_id, slug, api_url, web_url, version, key_id, sealed_key, ciphertext, created_by)
             select $1, $2, $3, $4, $5, $6, $7, $8, $9
             on conflict (is_only) do update set app_id = excluded.app_id, slug = excluded.slug, api_url = excluded.api_url,
                    web_url = excluded.web_url, version = excluded.version, key_id = excluded.key_id,
                    sealed_key = excluded.sealed_key, ciphertext = excluded.ciphertext, created_at = now(), created_by = excluded.created_by
              where a.version = excluded.version - 1",
        )
        .bind(signed(*app_id))
        .bind(slug)
        .bind(api_url)
        .bind(web_url)
        .bind(signed(*version))
        .bind(&sealed.key_id)
        .bind(&sealed.sealed_key)
        .bind(&sealed.ciphertext)
        .bind(by)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(stored.rows_affected() > 0)
    }

    /// Puts a key that was sealed again in the place of the same key. Returns whether it did: not if the App has changed since, or if another key seals.
    ///
    /// # Errors
    /// `Db`: replaced or not; both open the credentials.
    pub async fn replace_forge_app_key(
        &self,
        version: u64,
        older_key_id: &str,
        key: &SealedKey,
    ) -> Result<bool, Error> {
        let mut tx = self.0.begin_without_tenant().await?;
        if lock_key(&mut tx).await?.as_ref() != Some(&key.key_id) {
            return Ok(false);
        }
        let done = sqlx::query(
            "update forge_app set key_id = $3, sealed_key = $4 where version = $1 and key_id = $2",
        )
        .bind(signed(version))
        .bind(older_key_id)
        .bind(&key.key_id)
        .bind(&key.bytes)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Whether an installation belongs to a tenant.
    ///
    /// # Errors
    /// `Db`.
    pub async fn has_installation(&self, tenant: TenantId, id: u64) -> Result<bool, Error> {
        let query = sqlx::query("select 1 from forge_installation where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(signed(id));
        Ok(self.0.statements(tenant).await?.fetch_optional(query).await?.is_some())
    }

    /// Finds the tenant's installation for the repositories of an account. Forges do not tell capital letters from small ones.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_installation(&self, tenant: TenantId, account: &str) -> Result<Option<u64>, Error> {
        let query = sqlx::query(
            "select id from forge_installation where tenant_id = $1 and lower(account) = lower($2)",
        )
        .bind(tenant.0)
        .bind(account);
        let row = self.0.statements(tenant).await?.fetch_optional(query).await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?.map(unsigned))
    }
}

fn sealed_app(row: &PgRow) -> Result<SealedApp, Error> {
    Ok(SealedApp {
        app: ForgeApp {
            app_id: unsigned(row.try_get("app_id")?),
            slug: row.try_get("slug")?,
            api_url: row.try_get("api_url")?,
            web_url: row.try_get("web_url")?,
        },
        version: unsigned(row.try_get("version")?),
        sealed: SealedSecret {
            key_id: row.try_get("key_id")?,
            sealed_key: row.try_get("sealed_key")?,
            ciphertext: row.try_get("ciphertext")?,
        },
    })
}
