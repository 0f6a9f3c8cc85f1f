//! The audit: who changed what binds or costs a tenant. Each line is written in the transaction of its change: those of keys, settings, secrets, projects
//! and tenants by triggers (migration 0051), the others by [`Audit::note`].

use crate::{
    Actor, Page, Store,
    column::{timestamp, unsigned},
    error::Error,
};
use domain::ids::{TenantId, Timestamp};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::sync::Arc;

/// A line of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its position. Positions only grow, and some are never used.
    pub seq: i64,
    pub at: Timestamp,
    /// `None`: it is about the deployment.
    pub tenant: Option<TenantId>,
    /// Who acted: `postgres:` and the role of Postgres if nobody did through a gateway.
    pub actor: Actor,
    /// The kind of object and what happened to it, such as `key.create`.
    pub action: String,
    pub object: String,
    /// SHA-256 of the stored row before, in hexadecimal digits. `None`: there was none, or the line is about something else than a row.
    pub before_sha256: Option<String>,
    /// The same after.
    pub after_sha256: Option<String>,
}

/// What a change is written down as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditNote<'a> {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) action: &'a str,
    pub(crate) object: &'a str,
}

impl<'a> AuditNote<'a> {
    /// A line of a tenant.
    pub(crate) fn of(tenant: TenantId, action: &'a str, object: &'a str) -> Self {
        Self { tenant: Some(tenant), action, object }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditScope {
    Tenant(TenantId),
    /// Those of the deployment and of all tenants.
    Deployment,
}

impl Store {
    /// A handle whose changes are written down in the name of `actor`. What a handle without an actor does is the work of the service itself.
    #[must_use]
    pub fn acting(&self, actor: Actor) -> Self {
        Self { actor: Some(Arc::new(actor)), ..self.clone() }
    }

    /// Writes a line about something that changes no row of its own, such as a refused call.
    ///
    /// # Errors
    /// `Db`.
    pub async fn note_action(&self, tenant: TenantId, action: &str, object: &str) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        self.note(&mut tx, AuditNote::of(tenant, action, object)).await?;
        Ok(tx.commit().await?)
    }

    /// Writes down how often unknown keys with these first parts were refused.
    ///
    /// # Errors
    /// `Db`.
    pub async fn note_refused_keys(&self, refused: &[(String, u32)]) -> Result<(), Error> {
        let objects: Vec<String> =
            refused.iter().map(|(prefix, count)| format!("{prefix}… {count} times")).collect();
        sqlx::query(
            "insert into audit (actor, action, object) select 'unknown', 'key.refuse', object from unnest($1::text[]) object",
        )
        .bind(objects)
        .execute(&self.system)
        .await?;
        Ok(())
    }

    /// Lists lines, the newest first. The cursor is the position of the last one.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_audit(&self, scope: AuditScope, page: &Page) -> Result<Vec<AuditEntry>, Error> {
        let before: i64 = page.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(i64::MAX);
        let rows = match scope {
            AuditScope::Tenant(tenant) => {
                let query = sqlx::query(
                    "select seq, at, tenant_id, actor, actor_key, action, object, before_sha256, after_sha256 from audit
                      where tenant_id = $1 and seq < $2 order by seq desc limit $3",
                );
                let query = query.bind(tenant.0).bind(before).bind(page.limit());
                self.statements(tenant).await?.fetch_all(query).await?
            }
            AuditScope::Deployment => {
                let query = sqlx::query(
                    "select seq, at, tenant_id, actor, actor_key, action, object, before_sha256, after_sha256 from audit
                      where seq < $1 order by seq desc limit $2",
                );
                query.bind(before).bind(page.limit()).fetch_all(&self.system).await?
            }
        };
        Ok(rows.iter().map(from_row).collect::<Result<_, _>>()?)
    }

    /// Removes at most `limit` lines of more than 400 days ago: they are kept as long as the ledger, so that what was spent can be checked with who allowed it. Only
    /// this function of the database can remove a line. Returns their number.
    ///
    /// # Errors
    /// `Db`.
    pub async fn forget_audit(&self, limit: i64) -> Result<u64, Error> {
        let forgotten: i64 =
            sqlx::query_scalar("select forget_audit($1)").bind(limit).fetch_one(&self.system).await?;
        Ok(unsigned(forgotten))
    }

    /// Begins a transaction of the role that sees all tenants.
    pub(crate) async fn begin_system(&self) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, Error> {
        let mut tx = self.system.begin().await?;
        if let Some(actor) = &self.actor {
            actor.act_in(&mut tx).await?;
        }
        Ok(tx)
    }

    /// Writes a line in the name of the actor; nothing if this handle has none.
    pub(crate) async fn note(&self, connection: &mut PgConnection, note: AuditNote<'_>) -> Result<(), Error> {
        let Some(actor) = &self.actor else { return Ok(()) };
        let AuditNote { tenant, action, object } = note;
        sqlx::query(
            "insert into audit (tenant_id, actor, actor_key, action, object) values ($1, $2, $3, $4, $5)",
        )
        .bind(tenant.map(|tenant| tenant.0))
        .bind(&actor.name)
        .bind(&actor.key)
        .bind(action)
        .bind(object)
        .execute(connection)
        .await?;
        Ok(())
    }
}

fn from_row(row: &PgRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        seq: row.try_get("seq")?,
        at: timestamp(row.try_get("at")?),
        tenant: row.try_get::<Option<_>, _>("tenant_id")?.map(TenantId),
        actor: Actor { name: row.try_get("actor")?, key: row.try_get("actor_key")? },
        action: row.try_get("action")?,
        object: row.try_get("object")?,
        before_sha256: row.try_get("before_sha256")?,
        after_sha256: row.try_get("after_sha256")?,
    })
}
