//! Secrets of a tenant and its projects, as everybody but the broker sees them: without their sealed values, which the role of this handle
//! cannot read.

use crate::{
    Page, Store,
    column::{parse_id, timestamp, unsigned},
    error::{Entity, Error},
};
use domain::{
    ids::{ProjectId, TenantId, Timestamp},
    secret::{SecretAddress, SecretName},
};
use sqlx::{Row as _, postgres::PgRow};
use std::collections::BTreeMap;

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    pub address: SecretAddress,
    /// Higher than every earlier version of any secret of the tenant.
    pub version: u64,
    /// When this version was stored.
    pub created_at: Timestamp,
    /// The name of the key that stored it.
    pub created_by: String,
    /// When the broker last opened this version.
    pub last_used_at: Option<Timestamp>,
    /// The beginnings of the URLs of the servers that may get its value; empty: each server that the settings name.
    pub urls: Vec<String>,
}

/// What names the secret of a row.
pub(crate) fn address(row: &PgRow) -> Result<SecretAddress, Error> {
    let project: Option<String> = row.try_get("project_id")?;
    let project = project.map(|id| parse_id::<ProjectId>("secret", &id)).transpose()?;
    let name: SecretName = parse_id("secret", row.try_get("name")?)?;
    Ok(SecretAddress { project, name })
}

fn from_row(row: &PgRow) -> Result<Secret, Error> {
    Ok(Secret {
        address: address(row)?,
        version: unsigned(row.try_get("version")?),
        created_at: timestamp(row.try_get("created_at")?),
        created_by: row.try_get("created_by")?,
        last_used_at: row.try_get::<Option<_>, _>("last_used_at")?.map(timestamp),
        urls: row.try_get("urls")?,
    })
}

impl Secret {
    /// The cursor after this entry of a list.
    pub fn cursor(&self) -> String {
        format!("{}/{}", self.address.scope(), self.address.name)
    }
}

impl Store {
    /// Lists the secrets of a tenant, its own first and then those of each project, by name; with a project, only those of the project.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_secrets(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        page: &Page,
    ) -> Result<Vec<Secret>, Error> {
        let cursor = page.cursor.as_deref().unwrap_or_default();
        let (scope, name) = cursor.split_once('/').unwrap_or_default();
        let query = sqlx::query(
            "select project_id, name, version, created_at, created_by, last_used_at, urls from secret
              where tenant_id = $1 and (scope, name) > ($2, $3) and ($4::text is null or scope = $4)
              order by scope, name limit $5",
        )
        .bind(tenant.0)
        .bind(scope)
        .bind(name)
        .bind(project.map(ProjectId::as_str))
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Finds the newest versions of secrets of the project, or else of the tenant. Names that neither has are missing in the result.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_secret_versions(
        &self,
        tenant: TenantId,
        project: &ProjectId,
        names: &[SecretName],
    ) -> Result<BTreeMap<SecretName, u64>, Error> {
        let names: Vec<&str> = names.iter().map(SecretName::as_str).collect();
        // The scope of the tenant is the empty one, so that of the project comes first.
        let query = sqlx::query(
            "select distinct on (name) name, version from secret
              where tenant_id = $1 and scope in ('', $2) and name = any($3)
              order by name, scope desc",
        )
        .bind(tenant.0)
        .bind(project.as_str())
        .bind(names);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let read = |row: &PgRow| -> Result<_, Error> {
            Ok((parse_id("secret", row.try_get("name")?)?, unsigned(row.try_get("version")?)))
        };
        rows.iter().map(read).collect()
    }

    /// Deletes a secret, and returns the version that it had.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn delete_secret(&self, tenant: TenantId, address: &SecretAddress) -> Result<u64, Error> {
        let delete = sqlx::query(
            "delete from secret where tenant_id = $1 and scope = $2 and name = $3 returning version",
        )
        .bind(tenant.0)
        .bind(address.scope())
        .bind(address.name.as_str());
        let mut tx = self.begin(tenant).await?;
        let row = delete.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound(Entity::Secret))?;
        let version = unsigned(row.try_get("version")?);
        tx.commit().await?;
        Ok(version)
    }
}
