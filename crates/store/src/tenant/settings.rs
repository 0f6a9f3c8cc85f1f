//! Settings of tenants and projects, stored as text. The crate `settings` interprets them.

use crate::{
    Store,
    column::timestamp,
    error::{Entity, Error},
};
use domain::{
    ids::{ProjectId, SessionId, TenantId, Timestamp},
    policy::level::Level,
};
use sqlx::{Row as _, postgres::PgRow};

/// Settings as a person wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSettings {
    /// Their level: the tenant or the project.
    pub level: Level,
    /// An `opencode.json`.
    pub document: String,
    /// The person who wrote them.
    pub by: String,
    pub at: Timestamp,
}

fn from_row(row: &PgRow) -> Result<StoredSettings, Error> {
    of_project(row, row.try_get("project_id")?)
}

/// Reads the settings in a row of a statement that joins them: with the column `settings_of` in place of `project_id`, and without values if there are
/// none.
///
/// # Errors
/// `Db`.
pub(crate) fn find_in_row(row: &PgRow) -> Result<Option<StoredSettings>, Error> {
    let project = row.try_get::<Option<&str>, _>("settings_of")?;
    project.map(|project| of_project(row, project)).transpose()
}

/// Reads the settings in a row. Those of the tenant have an empty project.
fn of_project(row: &PgRow, project: &str) -> Result<StoredSettings, Error> {
    Ok(StoredSettings {
        level: if project.is_empty() { Level::Tenant } else { Level::Project },
        document: row.try_get("document")?,
        by: row.try_get("changed_by")?,
        at: timestamp(row.try_get("changed_at")?),
    })
}

impl Store {
    /// Stores the settings of the tenant or of one of its projects, replacing earlier ones.
    ///
    /// # Errors
    /// `NotFound` if the project does not exist, or `Db`.
    pub async fn put_settings(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
        document: &str,
        by: &str,
    ) -> Result<StoredSettings, Error> {
        // No foreign key can check the project, because the tenant's own row has none.
        let insert = sqlx::query(
            "insert into settings (tenant_id, project_id, document, changed_by) select $1, $2, $3, $4
              where $2 = '' or exists (select from project where tenant_id = $1 and id = $2)
             on conflict (tenant_id, project_id) do update
               set document = excluded.document, changed_by = excluded.changed_by, changed_at = now()
             returning project_id, document, changed_by, changed_at",
        )
        .bind(tenant.0)
        .bind(project.map_or("", ProjectId::as_str))
        .bind(document)
        .bind(by);
        let mut tx = self.begin(tenant).await?;
        let row = insert.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound(Entity::Project))?;
        let stored = from_row(&row)?;
        tx.commit().await?;
        Ok(stored)
    }

    /// Deletes the settings of the tenant or of one of its projects. Returns whether they existed.
    ///
    /// # Errors
    /// `Db`.
    pub async fn delete_settings(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
    ) -> Result<bool, Error> {
        let delete = sqlx::query("delete from settings where tenant_id = $1 and project_id = $2")
            .bind(tenant.0)
            .bind(project.map_or("", ProjectId::as_str));
        let mut tx = self.begin(tenant).await?;
        let deleted = delete.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(deleted > 0)
    }

    /// Returns the settings of the tenant, then those of the project; either may be missing.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_settings(
        &self,
        tenant: TenantId,
        project: Option<&ProjectId>,
    ) -> Result<Vec<StoredSettings>, Error> {
        let query = sqlx::query(
            "select project_id, document, changed_by, changed_at from settings
              where tenant_id = $1 and project_id in ('', $2) order by project_id",
        )
        .bind(tenant.0)
        .bind(project.map_or("", ProjectId::as_str));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Like [`Store::list_settings`], for the project of a session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_settings_of(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Vec<StoredSettings>, Error> {
        let query = sqlx::query(
            "select t.project_id, t.document, t.changed_by, t.changed_at
               from settings t join session s on s.tenant_id = t.tenant_id
              where t.tenant_id = $1 and s.id = $2 and t.project_id in ('', s.project_id) order by t.project_id",
        )
        .bind(tenant.0)
        .bind(session.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }
}
