//! Compares what Postgres says about workspaces with what the sandbox has, and knows the sandbox service that has them: there is one for each deployment.

use super::{
    candidate::{SessionRef, session_ref},
    retention::{ProjectRef, project_ref},
};
use crate::{Store, column::signed, error::Error};
use sqlx::Row as _;
use uuid::Uuid;

/// Files on the sandbox machine, as the sandbox lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFiles {
    /// The session that they belong to.
    pub owner: SessionRef,
    /// The highest epoch that the sandbox has seen.
    pub epoch: u64,
}

impl Store {
    /// Gives the id of the sandbox service that has the files of the sessions. The first one that is `found` is noted; `found` takes the place of the noted one if
    /// the operator says that it `replaces` exactly that one.
    ///
    /// # Errors
    /// `Db`: noted or not; safe to repeat.
    pub async fn note_sandbox(&self, found: &str, replaces: Option<&str>) -> Result<String, Error> {
        let row = sqlx::query(
            "insert into sandbox_service as known (is_only, id) values (true, $1)
             on conflict (is_only) do update
               set id = case when known.id = $2 then excluded.id else known.id end,
                   noted_at = case when known.id = $2 then now() else known.noted_at end
             returning id",
        )
        .bind(found)
        .bind(replaces)
        .fetch_one(&self.system)
        .await?;
        Ok(row.try_get("id")?)
    }

    /// Lists the sessions whose files were opened, by tenant and id; the cursor is the last one.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_opened(
        &self,
        after: Option<&SessionRef>,
        limit: i64,
    ) -> Result<Vec<SessionRef>, Error> {
        let (tenant, session) =
            after.map_or((Uuid::nil(), ""), |after| (after.tenant.0, after.session.as_str()));
        let rows = sqlx::query(
            "select tenant_id, id as session_id from session
              where has_workspace and (tenant_id, id) > ($1, $2) order by tenant_id, id limit $3",
        )
        .bind(tenant)
        .bind(session)
        .bind(limit)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(session_ref).collect()
    }

    /// Returns those of these sessions whose files should still be there.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_opened(&self, sessions: &[SessionRef]) -> Result<Vec<SessionRef>, Error> {
        let (tenants, ids) = columns(sessions.iter());
        let rows = sqlx::query(
            "select s.tenant_id, s.id as session_id from session s
               join unnest($1::uuid[], $2::text[]) as t (tenant_id, id) on t.tenant_id = s.tenant_id and t.id = s.id
              where s.has_workspace order by 1, 2",
        )
        .bind(&tenants)
        .bind(&ids)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(session_ref).collect()
    }

    /// Returns those of these projects that do not exist.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn find_missing_projects(&self, projects: &[ProjectRef]) -> Result<Vec<ProjectRef>, Error> {
        let (tenants, ids): (Vec<Uuid>, Vec<&str>) =
            projects.iter().map(|it| (it.tenant.0, it.project.as_str())).unzip();
        let rows = sqlx::query(
            "select t.tenant_id, t.id from unnest($1::uuid[], $2::text[]) as t (tenant_id, id)
              where not exists (select 1 from project p where p.tenant_id = t.tenant_id and p.id = t.id) order by 1, 2",
        )
        .bind(&tenants)
        .bind(&ids)
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(project_ref).collect()
    }

    /// Orders the removal of those of these files whose session does not exist, and returns the number of new orders.
    ///
    /// # Errors
    /// `Db`.
    pub async fn order_orphans(&self, files: &[StoredFiles]) -> Result<u64, Error> {
        let (tenants, ids) = columns(files.iter().map(|files| &files.owner));
        let epochs: Vec<i64> = files.iter().map(|files| signed(files.epoch.saturating_add(1))).collect();
        let result = sqlx::query(
            "insert into node_removal (tenant_id, session_id, epoch, next_at)
             select t.tenant_id, t.id, t.epoch, now() from unnest($1::uuid[], $2::text[], $3::bigint[]) as t (tenant_id, id, epoch)
              where not exists (select 1 from session s where s.tenant_id = t.tenant_id and s.id = t.id)
                and not exists (select 1 from node_removal r where r.tenant_id = t.tenant_id and r.session_id = '')
             on conflict do nothing",
        )
        .bind(&tenants)
        .bind(&ids)
        .bind(&epochs)
        .execute(&self.system)
        .await?;
        Ok(result.rows_affected())
    }
}

/// The tenants and the ids of sessions, in the same order.
fn columns<'a>(sessions: impl Iterator<Item = &'a SessionRef>) -> (Vec<Uuid>, Vec<&'a str>) {
    sessions.map(|session| (session.tenant.0, session.session.as_str())).unzip()
}
