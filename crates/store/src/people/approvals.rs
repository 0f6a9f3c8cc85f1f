//! Answers "always": what nobody needs to be asked again, in one session, in a project, or in the whole tenant.

use crate::{Page, Store, error::Error, parsed, timestamp};
use domain::{
    ids::{PermissionId, ProjectId, SessionId, TenantId, Timestamp},
    permission::{Rule, Rules, Scope},
    request::Id,
};
use sqlx::{
    Postgres, Row as _, Transaction,
    postgres::PgRow,
    types::{Json, time::OffsetDateTime},
};

/// What one answer allows beyond its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The request that was answered.
    pub request: PermissionId,
    /// Where it counts; `None`: in the whole tenant.
    pub project: Option<ProjectId>,
    /// Which tools.
    pub permission: String,
    /// Which uses of them.
    pub pattern: String,
    /// Who answered.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

impl Store {
    /// Gives the rules that bind no session alone but count in one, because of its project or its tenant.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_approvals_of(&self, tenant: TenantId, session: &SessionId) -> Result<Vec<Rule>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select a.permission, a.pattern from approval a join session s on s.tenant_id = a.tenant_id
              where a.tenant_id = $1 and s.id = $2 and (a.project_id is null or a.project_id = s.project_id)",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_all(&mut *tx)
        .await?;
        let rule = |row: &PgRow| Ok(Rule::approval(row.try_get("permission")?, row.try_get("pattern")?));
        rows.iter().map(rule).collect()
    }

    /// Lists what was answered "always" for projects and for the tenant; the cursor is the last request's id.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_approvals(&self, tenant: TenantId, page: &Page) -> Result<Vec<Approval>, Error> {
        let mut tx = self.begin(tenant).await?;
        // Whole answers: the page ends between two requests.
        let rows = sqlx::query(
            "select request_id, project_id, permission, pattern, approved_by, approved_at from approval
              where tenant_id = $1 and request_id in (
                select distinct request_id from approval where tenant_id = $1 and request_id > $2
                 order by request_id limit $3)
              order by request_id, pattern",
        )
        .bind(tenant.0)
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit())
        .fetch_all(&mut *tx)
        .await?;
        rows.iter().map(from_row).collect()
    }

    /// Takes an answer "always" of a project or a tenant back. Gives whether there was one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn delete_approval(&self, tenant: TenantId, request: &PermissionId) -> Result<bool, Error> {
        let mut tx = self.begin(tenant).await?;
        let done = sqlx::query("delete from approval where tenant_id = $1 and request_id = $2")
            .bind(tenant.0)
            .bind(request.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(done.rows_affected() > 0)
    }
}

fn from_row(row: &PgRow) -> Result<Approval, Error> {
    let project: Option<String> = row.try_get("project_id")?;
    Ok(Approval {
        request: parsed(row.try_get("request_id")?)?,
        project: project.as_deref().map(parsed).transpose()?,
        permission: row.try_get("permission")?,
        pattern: row.try_get("pattern")?,
        by: row.try_get("approved_by")?,
        at: timestamp(row.try_get::<OffsetDateTime, _>("approved_at")?),
    })
}

/// Stores what an answer allows from now on.
pub(crate) async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    (tenant, session): (TenantId, &SessionId),
    (request, by, scope): (&Id, &str, Scope),
    (permission, patterns): (&str, &[String]),
) -> Result<(), Error> {
    if scope == Scope::Session {
        return extend(tx, tenant, session, (permission, patterns)).await;
    }
    sqlx::query(
        "insert into approval (tenant_id, request_id, project_id, permission, pattern, approved_by)
         select $1, $2, case when $3 then s.project_id end, $4, pattern, $5
           from session s, unnest($6::text[]) pattern where s.tenant_id = $1 and s.id = $7
         on conflict do nothing",
    )
    .bind(tenant.0)
    .bind(request.as_str())
    .bind(scope == Scope::Project)
    .bind(permission)
    .bind(by)
    .bind(patterns)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Each list of rules of the session ends with what is allowed from now on.
async fn extend(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
    (permission, patterns): (&str, &[String]),
) -> Result<(), Error> {
    let row = sqlx::query("select rights from session where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_one(&mut **tx)
        .await?;
    let mut rights =
        row.try_get::<Json<Vec<Rules>>, _>("rights").map_err(|e| Error::unreadable("session", e))?.0;
    if rights.is_empty() {
        // Who was asked by the rules of an agent or a repository: a list of approvals alone permits nothing more.
        rights.push(Rules::default());
    }
    for rules in &mut rights {
        rules.0.extend(patterns.iter().map(|pattern| Rule::approval(permission, pattern)));
    }
    sqlx::query("update session set rights = $3 where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(Json(&rights))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
