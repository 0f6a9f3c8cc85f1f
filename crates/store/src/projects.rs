//! Projects: repositories with their settings.

use crate::{Page, Store, error::Error, timestamp};
use domain::{
    ids::{ProjectId, TenantId, Timestamp},
    session::Source,
};
use sqlx::{Row as _, types::Json};

/// A repository (or directory) in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Its name, unique in the tenant.
    pub name: String,
    /// What its sessions start from.
    pub source: Source,
    /// When it was made.
    pub created_at: Timestamp,
}

fn from_row(row: &sqlx::postgres::PgRow) -> Result<Project, Error> {
    let id: String = row.try_get("id")?;
    Ok(Project {
        id: id.parse().map_err(|e| Error::unreadable("project", e))?,
        name: row.try_get("name")?,
        source: row.try_get::<Json<Source>, _>("source")?.0,
        created_at: timestamp(row.try_get("created_at")?),
    })
}

impl Store {
    /// Makes a project, or gives the one of that name as it is.
    ///
    /// # Errors
    /// `Db`.
    pub async fn create_project(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        name: &str,
        source: &Source,
    ) -> Result<Project, Error> {
        let mut tx = self.begin(tenant).await?;
        // The update changes nothing; it makes the existing row part of the answer.
        let row = sqlx::query(
            "insert into project (tenant_id, id, name, source) values ($1, $2, $3, $4)
             on conflict (tenant_id, name) do update set name = excluded.name
             returning id, name, source, created_at",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(name)
        .bind(Json(source))
        .fetch_one(&mut *tx)
        .await?;
        let project = from_row(&row)?;
        tx.commit().await?;
        Ok(project)
    }

    /// Gives one project.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_project(&self, tenant: TenantId, id: &ProjectId) -> Result<Project, Error> {
        let mut tx = self.begin(tenant).await?;
        let row =
            sqlx::query("select id, name, source, created_at from project where tenant_id = $1 and id = $2")
                .bind(tenant.0)
                .bind(id.as_str())
                .fetch_optional(&mut *tx)
                .await?
                .ok_or(Error::NotFound("project"))?;
        from_row(&row)
    }

    /// Gives the project of a name, if there is one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_project(&self, tenant: TenantId, name: &str) -> Result<Option<Project>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "select id, name, source, created_at from project where tenant_id = $1 and name = $2",
        )
        .bind(tenant.0)
        .bind(name)
        .fetch_optional(&mut *tx)
        .await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Lists projects by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_projects(&self, tenant: TenantId, page: &Page) -> Result<Vec<Project>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select id, name, source, created_at from project where tenant_id = $1 and name > $2 order by name limit $3",
        )
        .bind(tenant.0)
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(from_row).collect()
    }
}
