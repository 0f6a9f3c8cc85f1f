//! Answers "always": uses of tools that need no further permission, in one session, in a project, or in the whole tenant.

use crate::{
    Page, Store, Tx,
    audit::AuditNote,
    column::{parse_id, timestamp},
    error::Error,
};
use domain::{
    conversation::request::Id,
    ids::{PermissionId, ProjectId, SessionId, TenantId, Timestamp},
    policy::permission::{Rule, Rules, Scope},
    text::head,
};
use sqlx::{
    Row as _,
    postgres::PgRow,
    types::{Json, time::OffsetDateTime},
};

/// Bytes of the patterns of an answer that the audit keeps; the approval itself has all of them.
const OBJECT_BYTES_MAX: usize = 1_000;

/// One pattern that an answer "always" allows beyond its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The request that was answered.
    pub request: PermissionId,
    /// The project in which it applies; `None`: the whole tenant.
    pub project: Option<ProjectId>,
    /// The permission that the tool asks for.
    pub permission: String,
    pub pattern: String,
    pub by: String,
    /// The time of the answer.
    pub at: Timestamp,
}

impl Store {
    /// Returns the approvals of the tenant and of the project that apply in a session.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_approvals_of(&self, tenant: TenantId, session: &SessionId) -> Result<Vec<Rule>, Error> {
        let query = sqlx::query(
            "select a.permission, a.pattern from approval a join session s on s.tenant_id = a.tenant_id
              where a.tenant_id = $1 and s.id = $2 and (a.project_id is null or a.project_id = s.project_id)",
        )
        .bind(tenant.0)
        .bind(session.as_str());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let rule = |row: &PgRow| Ok(Rule::approval(row.try_get("permission")?, row.try_get("pattern")?));
        rows.iter().map(rule).collect()
    }

    /// Lists the approvals of projects and of the tenant; the cursor is the id of the last request.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_approvals(&self, tenant: TenantId, page: &Page) -> Result<Vec<Approval>, Error> {
        // A page ends between two answers, never inside one, because one answer may allow several patterns.
        let query = sqlx::query(
            "select request_id, project_id, permission, pattern, approved_by, approved_at from approval
              where tenant_id = $1 and request_id in (
                select distinct request_id from approval where tenant_id = $1 and request_id > $2
                 order by request_id limit $3)
              order by request_id, pattern",
        )
        .bind(tenant.0)
        .bind(page.cursor.as_deref().unwrap_or_default())
        .bind(page.limit());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(from_row).collect()
    }

    /// Revokes an approval of a project or of the tenant. Returns whether it existed.
    ///
    /// # Errors
    /// `Db`.
    pub async fn delete_approval(&self, tenant: TenantId, request: &PermissionId) -> Result<bool, Error> {
        let delete = sqlx::query("delete from approval where tenant_id = $1 and request_id = $2")
            .bind(tenant.0)
            .bind(request.as_str());
        let mut tx = self.begin(tenant).await?;
        let deleted = delete.execute(&mut *tx).await?.rows_affected();
        if deleted > 0 {
            let note = AuditNote::of(tenant, "approval.delete", request.as_str());
            self.note(&mut tx, note).await?;
        }
        tx.commit().await?;
        Ok(deleted > 0)
    }
}

fn from_row(row: &PgRow) -> Result<Approval, Error> {
    let project: Option<String> = row.try_get("project_id")?;
    Ok(Approval {
        request: parse_id("approval", row.try_get("request_id")?)?,
        project: project.as_deref().map(|id| parse_id("approval", id)).transpose()?,
        permission: row.try_get("permission")?,
        pattern: row.try_get("pattern")?,
        by: row.try_get("approved_by")?,
        at: timestamp(row.try_get::<OffsetDateTime, _>("approved_at")?),
    })
}

/// An answer "always" to a permission request.
pub(crate) struct NewApproval<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) request: &'a Id,
    pub(crate) by: &'a str,
    pub(crate) scope: Scope,
    pub(crate) permission: &'a str,
    pub(crate) patterns: &'a [String],
}

impl NewApproval<'_> {
    /// What the audit says about it.
    pub(crate) fn object(&self) -> String {
        let Self { session, request, scope, permission, patterns, .. } = self;
        let reach = match scope {
            Scope::Session => "session",
            Scope::Project => "project",
            Scope::Tenant => "tenant",
        };
        let object = format!(
            "{} in {session} for the {reach}: {permission} {}",
            request.as_str(),
            patterns.join(", ")
        );
        head(&object, OBJECT_BYTES_MAX).to_owned()
    }
}

/// Stores an answer "always".
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn insert(tx: &mut Tx, tenant: TenantId, new: &NewApproval<'_>) -> Result<(), Error> {
    match new.scope {
        Scope::Session => extend_permissions(tx, tenant, new).await,
        Scope::Project | Scope::Tenant => insert_rows(tx, tenant, new).await,
    }
}

async fn insert_rows(tx: &mut Tx, tenant: TenantId, new: &NewApproval<'_>) -> Result<(), Error> {
    sqlx::query(
        "insert into approval (tenant_id, request_id, project_id, permission, pattern, approved_by)
         select $1, $2, case when $3 then s.project_id end, $4, pattern, $5
           from session s, unnest($6::text[]) pattern where s.tenant_id = $1 and s.id = $7
         on conflict do nothing",
    )
    .bind(tenant.0)
    .bind(new.request.as_str())
    .bind(new.scope == Scope::Project)
    .bind(new.permission)
    .bind(new.by)
    .bind(new.patterns)
    .bind(new.session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Appends the approval to each list of rules of the session.
async fn extend_permissions(tx: &mut Tx, tenant: TenantId, new: &NewApproval<'_>) -> Result<(), Error> {
    let row = sqlx::query("select rights from session where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(new.session.as_str())
        .fetch_one(&mut **tx)
        .await?;
    let mut lists =
        row.try_get::<Json<Vec<Rules>>, _>("rights").map_err(|e| Error::unreadable("session", e))?.0;
    if lists.is_empty() {
        // The rules that required the request belong to an agent or a repository. A list that contains only approvals
        // permits nothing else.
        lists.push(Rules::default());
    }
    for rules in &mut lists {
        rules.0.extend(new.patterns.iter().map(|pattern| Rule::approval(new.permission, pattern)));
    }
    sqlx::query("update session set rights = $3 where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(new.session.as_str())
        .bind(Json(&lists))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
