//! What upkeep deletes: sessions that were not used for longer than their tenant keeps them, empty projects, revoked keys and old costs. A tenant
//! without a number of its own has that of the platform.

use super::candidate::{SessionRef, session_ref};
use crate::{Store, column::parse_id, error::Error, phase::IDLE, tenant::retention::Retention};
use domain::{
    ids::{ProjectId, TenantId},
    session::Source,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow, types::Json};

/// Days for which a project without sessions, source, settings and secrets is kept after its last change. A client makes one in each directory that
/// somebody opens by mistake.
const EMPTY_PROJECT_KEPT_DAYS: f64 = 90.0;
/// Days for which the list of keys shows a revoked key.
const REVOKED_KEY_KEPT_DAYS: f64 = 90.0;

/// Days for which the ledger keeps what calls cost whose session is deleted: more than a year, so that every bill can be checked.
const LEDGER_KEPT_DAYS: f64 = 400.0;

/// A project of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRef {
    pub tenant: TenantId,
    pub project: ProjectId,
}

/// The condition that a root session `s` of the tenant `t` with the control row `r` is kept for no longer. `$1` and `$2` are
/// [`Retention::columns`] of the platform. Nothing of its tree works.
pub(crate) fn is_expired() -> String {
    format!(
        "s.parent_id is null and r.phase = {IDLE}
         and (coalesce(t.keep_idle_days, $1, 0) > 0 and s.updated_at < now() - coalesce(t.keep_idle_days, $1) * interval '1 day'
           or coalesce(t.keep_archived_days, $2, 0) > 0
              and s.archived_at < now() - coalesce(t.keep_archived_days, $2) * interval '1 day')
         and not exists (select 1 from session c join session_run x on x.tenant_id = c.tenant_id and x.session_id = c.id
                          where c.tenant_id = s.tenant_id and c.root_id = s.id and x.phase <> {IDLE})"
    )
}

/// Reads the columns `tenant_id` and `id`.
pub(crate) fn project_ref(row: &PgRow) -> Result<ProjectRef, Error> {
    let id: String = row.try_get("id")?;
    Ok(ProjectRef { tenant: TenantId(row.try_get("tenant_id")?), project: parse_id("project", &id)? })
}

impl Store {
    /// Lists at most `limit` empty projects whose last change was long ago. Continues in [`Store::delete_project`].
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_empty_projects(&self, limit: i64) -> Result<Vec<ProjectRef>, Error> {
        let rows = sqlx::query(
            "select tenant_id, id from project p
              where coalesce(updated_at, created_at) < now() - $2 * interval '1 day' and source::jsonb = $3::jsonb
                and not exists (select 1 from session s where s.tenant_id = p.tenant_id and s.project_id = p.id)
                and not exists (select 1 from settings s where s.tenant_id = p.tenant_id and s.project_id = p.id)
                and not exists (select 1 from secret c where c.tenant_id = p.tenant_id and c.project_id = p.id)
                and not exists (select 1 from approval a where a.tenant_id = p.tenant_id and a.project_id = p.id)
                and not exists (
                  select 1 from proposed_environment e where e.tenant_id = p.tenant_id and e.project_id = p.id and e.is_allowed)
              limit $1",
        )
        .bind(limit)
        .bind(EMPTY_PROJECT_KEPT_DAYS)
        .bind(Json(Source::default()))
        .fetch_all(&self.system)
        .await?;
        rows.iter().map(project_ref).collect()
    }

    /// Removes at most `limit` entries of the ledger from more than a year ago. What an existing session spent stays, because it counts against
    /// its budget. Reads the whole ledger. Returns the number of entries.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_old_costs(&self, limit: i64) -> Result<u64, Error> {
        let deletion = sqlx::query(
            "with old as materialized (
               select tenant_id, session_id, id from ledger l
                where created_at < now() - $2 * interval '1 day'
                  and not exists (select 1 from session s where s.tenant_id = l.tenant_id and s.id = l.root_id)
                limit $1)
             delete from ledger l using old
              where l.tenant_id = old.tenant_id and l.session_id = old.session_id and l.id = old.id",
        );
        let result = deletion.bind(limit).bind(LEDGER_KEPT_DAYS).execute(&self.system).await?;
        Ok(result.rows_affected())
    }

    /// Removes keys that were revoked long ago. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_revoked_keys(&self) -> Result<u64, Error> {
        let deletion = sqlx::query("delete from api_key where revoked_at < now() - $1 * interval '1 day'");
        Ok(deletion.bind(REVOKED_KEY_KEPT_DAYS).execute(&self.system).await?.rows_affected())
    }

    /// Lists at most `limit` root sessions that are kept for no longer. Continues in [`Store::expire_session`].
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_expired(&self, platform: Retention, limit: i64) -> Result<Vec<SessionRef>, Error> {
        let [idle_days, archived_days] = platform.columns();
        let sql = format!(
            "select s.tenant_id, s.id as session_id
               from tenant t join session s on s.tenant_id = t.id
               join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
              where (coalesce(t.keep_idle_days, $1, 0) > 0 or coalesce(t.keep_archived_days, $2, 0) > 0) and {} limit $3",
            is_expired()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(idle_days).bind(archived_days).bind(limit);
        rows.fetch_all(&self.system).await?.iter().map(session_ref).collect()
    }
}
