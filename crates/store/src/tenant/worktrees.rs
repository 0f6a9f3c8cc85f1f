//! Worktrees: further directories of a project, each with a branch of its own. A session that begins in one belongs to it. The sessions stay when
//! their worktree is removed: from then on they belong to the project alone.

use crate::{
    Store,
    column::parse_id,
    error::{Entity, Error},
};
use domain::ids::{ProjectId, TenantId, WorktreeId};
use sqlx::{Row as _, postgres::PgRow};

/// A worktree of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    pub id: WorktreeId,
    pub project: ProjectId,
    /// Its name, unique in the project.
    pub name: String,
    /// The directory by which clients know it, unique in the tenant.
    pub directory: String,
    /// The branch on which the files of its sessions begin.
    pub branch: String,
}

/// The sessions of a directory: those of a project, or only those of one of its worktrees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionArea {
    pub project: ProjectId,
    /// The worktree; `None`: all sessions of the project, with those of its worktrees.
    pub worktree: Option<WorktreeId>,
}

impl From<ProjectId> for SessionArea {
    fn from(project: ProjectId) -> Self {
        Self { project, worktree: None }
    }
}

/// The result of creating a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorktreeCreation {
    Created,
    /// A worktree or a project has its directory; nothing is written.
    DirectoryTaken,
    /// The project has as many worktrees as it may have; nothing is written.
    TooMany,
}

fn from_row(row: &PgRow) -> Result<Worktree, Error> {
    Ok(Worktree {
        id: parse_id("worktree", row.try_get("id")?)?,
        project: parse_id("worktree", row.try_get("project_id")?)?,
        name: row.try_get("name")?,
        directory: row.try_get("directory")?,
        branch: row.try_get("branch")?,
    })
}

impl Store {
    /// Creates a worktree, unless its directory is taken or the project has `worktrees_max` of them.
    ///
    /// # Errors
    /// `NotFound` for the project; `Db`.
    pub async fn create_worktree(
        &self,
        tenant: TenantId,
        new: &Worktree,
        worktrees_max: u32,
    ) -> Result<WorktreeCreation, Error> {
        let mut tx = self.begin(tenant).await?;
        // Calls for the same project count one after the other. Sessions can begin meanwhile.
        sqlx::query("select 1 from project where tenant_id = $1 and id = $2 for no key update")
            .bind(tenant.0)
            .bind(new.project.as_str())
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(Error::NotFound(Entity::Project))?;
        let count: i64 =
            sqlx::query_scalar("select count(*) from worktree where tenant_id = $1 and project_id = $2")
                .bind(tenant.0)
                .bind(new.project.as_str())
                .fetch_one(&mut *tx)
                .await?;
        if count >= i64::from(worktrees_max) {
            return Ok(WorktreeCreation::TooMany);
        }
        let result = sqlx::query(
            "insert into worktree (tenant_id, project_id, id, name, directory, branch)
             select $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text
              where not exists (select 1 from project where tenant_id = $1 and name = $5)
                and not exists (select 1 from project_place where tenant_id = $1 and place = $5)
             on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(new.project.as_str())
        .bind(new.id.as_str())
        .bind(&new.name)
        .bind(&new.directory)
        .bind(&new.branch)
        .execute(&mut *tx)
        .await?;
        if result.rows_affected() == 0 {
            return Ok(WorktreeCreation::DirectoryTaken);
        }
        tx.commit().await?;
        Ok(WorktreeCreation::Created)
    }

    /// Lists the worktrees of a project, the oldest first, at most `worktrees_max`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_worktrees(
        &self,
        tenant: TenantId,
        project: &ProjectId,
        worktrees_max: u32,
    ) -> Result<Vec<Worktree>, Error> {
        let query = sqlx::query(
            "select id, project_id, name, directory, branch from worktree where tenant_id = $1 and project_id = $2
              order by created_at, name limit $3",
        )
        .bind(tenant.0)
        .bind(project.as_str())
        .bind(i64::from(worktrees_max));
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Returns the worktree with this directory.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_worktree(&self, tenant: TenantId, directory: &str) -> Result<Option<Worktree>, Error> {
        let query = sqlx::query(
            "select id, project_id, name, directory, branch from worktree where tenant_id = $1 and directory = $2",
        )
        .bind(tenant.0)
        .bind(directory);
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        row.as_ref().map(from_row).transpose()
    }

    /// Lets a worktree begin anew, with the id and the branch of `new`. Its sessions belong to the project alone from then on. False if the worktree
    /// `id` does not exist: then nothing changes.
    ///
    /// # Errors
    /// `Db`.
    pub async fn reset_worktree(
        &self,
        tenant: TenantId,
        id: &WorktreeId,
        new: &Worktree,
    ) -> Result<bool, Error> {
        let update = sqlx::query(
            "update worktree set id = $4, branch = $5 where tenant_id = $1 and project_id = $2 and id = $3",
        )
        .bind(tenant.0)
        .bind(new.project.as_str())
        .bind(id.as_str())
        .bind(new.id.as_str())
        .bind(&new.branch);
        Ok(self.statements(tenant).await?.run(update).await? > 0)
    }

    /// Removes a worktree. Its sessions belong to the project alone from then on. False if it does not exist.
    ///
    /// # Errors
    /// `Db`.
    pub async fn delete_worktree(&self, tenant: TenantId, worktree: &Worktree) -> Result<bool, Error> {
        let delete = sqlx::query("delete from worktree where tenant_id = $1 and project_id = $2 and id = $3")
            .bind(tenant.0)
            .bind(worktree.project.as_str())
            .bind(worktree.id.as_str());
        Ok(self.statements(tenant).await?.run(delete).await? > 0)
    }
}
