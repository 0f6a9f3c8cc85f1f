//! Projects: repositories (or directories) of a tenant.

use crate::{
    Page, Store,
    column::{parse_id, timestamp},
    error::{Entity, Error},
};
use domain::{
    ids::{ProjectId, TenantId, Timestamp},
    project::ProjectDisplay,
    session::Source,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};

const COLUMNS: &str = "id, name, source, shown, created_at, coalesce(updated_at, created_at) as updated_at,
    array(select w.directory from worktree w
           where w.tenant_id = project.tenant_id and w.project_id = project.id order by w.created_at, w.id) as worktrees";

/// Remotes of a project that are read to tell whether a directory belongs to it. It has one for each repository of its files.
const PROJECT_IDENTITIES_MAX: i64 = 100;

/// The condition of the index `project_with_files`: new sessions of the project have files.
const HAS_FILES: &str = "source ->> 'from' <> 'empty'";

/// What is around a directory that is itself unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    pub above: Vec<String>,
    /// The name of a project or a worktree that clients list as this directory.
    pub listed: String,
}

/// A project around a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurroundingProject {
    pub project: Project,
    /// The name, the place or the worktree by which it was found.
    pub directory: String,
}

/// A repository (or directory) in a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    /// Its name, unique in the tenant.
    pub name: String,
    /// The source of its sessions' files.
    pub source: Source,
    pub display: ProjectDisplay,
    /// The directories of its worktrees, the oldest first.
    pub worktrees: Vec<String>,
    pub created_at: Timestamp,
    /// When a person last changed its source or its display settings.
    pub updated_at: Timestamp,
}

/// A project with a wanted name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectCreation {
    pub project: Project,
    /// False if it existed before.
    pub is_new: bool,
}

fn from_row(row: &PgRow) -> Result<Project, Error> {
    let id: String = row.try_get("id")?;
    Ok(Project {
        id: parse_id("project", &id)?,
        name: row.try_get("name")?,
        source: row.try_get::<Json<Source>, _>("source")?.0,
        display: row
            .try_get::<Json<ProjectDisplay>, _>("shown")
            .map_err(|e| Error::unreadable("project", e))?
            .0,
        worktrees: row.try_get("worktrees")?,
        created_at: timestamp(row.try_get("created_at")?),
        updated_at: timestamp(row.try_get("updated_at")?),
    })
}

/// The projects that a caller may delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletable {
    /// Those without settings and secrets of their own.
    Unconfigured,
    All,
}

/// What became of the deletion of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectDeletion {
    Deleted,
    /// It still has sessions; nothing changed.
    HasSessions,
    /// It has settings or secrets, and the caller may not delete those; nothing changed.
    IsConfigured,
}

impl Store {
    /// Creates a project, or returns the existing one with that name. An existing project without files gets the source.
    ///
    /// # Errors
    /// `NotFound` if another call deletes the project at this moment, if its id belongs to another name, or if the name is the directory of
    /// a worktree; `Db`.
    pub async fn create_project(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        name: &str,
        source: &Source,
    ) -> Result<ProjectCreation, Error> {
        let mut tx = self.begin(tenant).await?;
        // Another call may create the project with the same id at this moment: the conflict can be with any constraint.
        let sql = format!(
            "insert into project (tenant_id, id, name, source)
             select $1::uuid, $2::text, $3::text, $4::json
              where not exists (select 1 from worktree where tenant_id = $1 and directory = $3)
             on conflict do nothing returning {COLUMNS}"
        );
        let insert = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(id.as_str()).bind(name);
        let inserted = insert.bind(Json(source)).fetch_optional(&mut *tx).await?;
        let is_new = inserted.is_some();
        let row = match inserted {
            Some(row) => row,
            None => {
                let sql = format!(
                    "update project set source = case when source::jsonb = $4::jsonb then $3::json else source end
                     where tenant_id = $1 and name = $2 returning {COLUMNS}"
                );
                let update = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(name);
                let update = update.bind(Json(source)).bind(Json(Source::default()));
                update.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound(Entity::Project))?
            }
        };
        let project = from_row(&row)?;
        tx.commit().await?;
        Ok(ProjectCreation { project, is_new })
    }

    /// Returns one project.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn get_project(&self, tenant: TenantId, id: &ProjectId) -> Result<Project, Error> {
        let sql = format!("select {COLUMNS} from project where tenant_id = $1 and id = $2");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(id.as_str());
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        from_row(&row.ok_or(Error::NotFound(Entity::Project))?)
    }

    /// Returns those of these projects that exist, in any order.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_projects(&self, tenant: TenantId, ids: &[&ProjectId]) -> Result<Vec<Project>, Error> {
        let sql = format!("select {COLUMNS} from project where tenant_id = $1 and id = any($2)");
        let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(ids);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Changes a project's display settings. `change` receives the stored settings and returns the new ones; if it returns
    /// `None`, nothing is written.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn update_project(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        change: impl FnOnce(&ProjectDisplay) -> Option<ProjectDisplay>,
    ) -> Result<Option<Project>, Error> {
        let mut tx = self.begin(tenant).await?;
        let sql = format!("select {COLUMNS} from project where tenant_id = $1 and id = $2 for update");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(id.as_str());
        let before = from_row(&row.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound(Entity::Project))?)?;
        let Some(display) = change(&before.display) else { return Ok(None) };
        let row = sqlx::query(AssertSqlSafe(format!(
            "update project set shown = $3, updated_at = now() where tenant_id = $1 and id = $2 returning {COLUMNS}"
        )))
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(Json(display))
        .fetch_one(&mut *tx)
        .await?;
        let project = from_row(&row)?;
        tx.commit().await?;
        Ok(Some(project))
    }

    /// Replaces the source of a project's new sessions.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn set_project_source(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        source: &Source,
    ) -> Result<Project, Error> {
        let sql = format!(
            "update project set source = $3, updated_at = now() where tenant_id = $1 and id = $2 returning {COLUMNS}"
        );
        let update = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(id.as_str()).bind(Json(source));
        let mut tx = self.begin(tenant).await?;
        let row = update.fetch_optional(&mut *tx).await?.ok_or(Error::NotFound(Entity::Project))?;
        let project = from_row(&row)?;
        tx.commit().await?;
        Ok(project)
    }

    /// Returns the project of this name, else the one that has a worktree with this directory, else the one that has this place.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_project(&self, tenant: TenantId, name: &str) -> Result<Option<Project>, Error> {
        let sql = format!(
            "select {COLUMNS} from project where tenant_id = $1 and (name = $2
               or id = (select project_id from project_place where tenant_id = $1 and place = $2)
               or id = (select project_id from worktree where tenant_id = $1 and directory = $2))
             order by name = $2 desc, id in (select project_id from worktree where tenant_id = $1 and directory = $2) desc
             limit 1"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(name);
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Returns the project of the nearest place above a directory that belongs to one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_project_around(
        &self,
        tenant: TenantId,
        surroundings: &Surroundings,
    ) -> Result<Option<SurroundingProject>, Error> {
        let sql = format!(
            "with known as (
               select project_id, place, 1 as rank from project_place where tenant_id = $1 and place = any($2)
               union all
               select project_id, directory, 1 from worktree where tenant_id = $1 and directory = any($2)
               union all
               select id, name, 1 from project where tenant_id = $1 and name = any($2) and {HAS_FILES}
               union all
               select id, name, 2 from project where tenant_id = $1 and name = $3
               union all
               select project_id, directory, 2 from worktree where tenant_id = $1 and directory = $3)
             select {COLUMNS}, known.place from project join known on known.project_id = project.id
              where project.tenant_id = $1 order by known.rank desc, length(known.place) desc limit 1"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(&surroundings.above);
        let row = self.statements(tenant).await?.fetch_optional(query.bind(&surroundings.listed)).await?;
        let project = |row: &PgRow| {
            Ok(SurroundingProject { project: from_row(row)?, directory: row.try_get("place")? })
        };
        row.as_ref().map(project).transpose()
    }

    /// Returns the name of the project whose sessions have files, if there is exactly one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_only_project_with_files(&self, tenant: TenantId) -> Result<Option<String>, Error> {
        let sql =
            format!("select name from project where tenant_id = $1 and {HAS_FILES} order by name limit 2");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let [row] = &rows[..] else { return Ok(None) };
        Ok(Some(row.try_get("name")?))
    }

    /// Gives a project places. A place that belonged to another project moves to this one. The directory of a worktree becomes no place: it
    /// belongs to the worktree's project.
    ///
    /// # Errors
    /// `Db`.
    pub async fn add_project_places(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        places: &[String],
    ) -> Result<(), Error> {
        // With `not exists`, Postgres could read all worktrees of the tenant.
        let insert = sqlx::query(
            "insert into project_place (tenant_id, place, project_id) select $1, place, $2 from unnest($3::text[]) place
              where (select true from worktree where tenant_id = $1 and directory = place) is null
             on conflict (tenant_id, place) do update set project_id = excluded.project_id",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(places);
        self.statements(tenant).await?.run(insert).await?;
        Ok(())
    }

    /// Lists the places of a project that are no directories: its remotes and its first commit, at most [`PROJECT_IDENTITIES_MAX`].
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_project_identities(
        &self,
        tenant: TenantId,
        id: &ProjectId,
    ) -> Result<Vec<String>, Error> {
        let query = sqlx::query(
            "select place from project_place where tenant_id = $1 and project_id = $2 and place not like '/%' order by place limit $3",
        )
        .bind(tenant.0)
        .bind(id.as_str())
        .bind(PROJECT_IDENTITIES_MAX);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(|row| Ok(row.try_get("place")?)).collect()
    }

    /// Removes all places of a project.
    ///
    /// # Errors
    /// `Db`.
    pub async fn remove_project_places(&self, tenant: TenantId, id: &ProjectId) -> Result<(), Error> {
        let delete = sqlx::query("delete from project_place where tenant_id = $1 and project_id = $2")
            .bind(tenant.0)
            .bind(id.as_str());
        self.statements(tenant).await?.run(delete).await?;
        Ok(())
    }

    /// Deletes a project with its settings, secrets and places, unless it is not `deletable` or still has sessions.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn delete_project(
        &self,
        tenant: TenantId,
        id: &ProjectId,
        deletable: Deletable,
    ) -> Result<ProjectDeletion, Error> {
        let mut tx = self.begin(tenant).await?;
        // A new session takes a weaker lock of this row, so none is created until the end.
        sqlx::query("select 1 from project where tenant_id = $1 and id = $2 for update")
            .bind(tenant.0)
            .bind(id.as_str())
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Project))?;
        // In this order the index `session_project` gives the answer with its first row, also when there is none.
        let session = sqlx::query(
            "select 1 from session where tenant_id = $1 and project_id = $2 order by updated_at desc limit 1",
        );
        if session.bind(tenant.0).bind(id.as_str()).fetch_optional(&mut *tx).await?.is_some() {
            return Ok(ProjectDeletion::HasSessions);
        }
        if deletable == Deletable::Unconfigured {
            let configured = sqlx::query(
                "select 1 from settings where tenant_id = $1 and project_id = $2
                 union all select 1 from secret where tenant_id = $1 and project_id = $2 limit 1",
            );
            if configured.bind(tenant.0).bind(id.as_str()).fetch_optional(&mut *tx).await?.is_some() {
                return Ok(ProjectDeletion::IsConfigured);
            }
        }
        for deletion in [
            "delete from settings where tenant_id = $1 and project_id = $2",
            "delete from project where tenant_id = $1 and id = $2",
        ] {
            sqlx::query(deletion).bind(tenant.0).bind(id.as_str()).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(ProjectDeletion::Deleted)
    }

    /// Lists projects by name; the cursor is the last name.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_projects(&self, tenant: TenantId, page: &Page) -> Result<Vec<Project>, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select {COLUMNS} from project where tenant_id = $1 and name > $2 order by name limit $3"
        )))
        .bind(tenant.0)
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }
}
