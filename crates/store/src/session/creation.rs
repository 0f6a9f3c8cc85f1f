//! Stores a new session, once for each idempotency key. The column `dedupe` holds `key:` and the caller's key. The names of
//! children in that column have another prefix, so callers cannot take one of them.

use crate::{
    Store, Tx,
    column::parse_id,
    error::{Entity, Error},
    rows::session_row::{self, Session},
};
use domain::{
    conversation::message::ModelRef,
    ids::{ProjectId, SessionId, TenantId, WorktreeId},
    money::UsdPicos,
    policy::permission::{OnAsk, Rules},
    session::{Class, ExplicitChoices, Source},
};
use sqlx::{PgConnection, Row as _, types::Json};

#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub id: SessionId,
    pub project_id: ProjectId,
    /// The worktree of the project in which it begins.
    pub worktree_id: Option<WorktreeId>,
    pub title: String,
    pub agent: String,
    pub model: ModelRef,
    /// The variant (reasoning effort) of prompts that choose none; `None`: the provider's default.
    pub variant: Option<String>,
    /// Whether a person chose the agent and the model.
    pub chosen: ExplicitChoices,
    /// Where its files come from; `None`: from the source of its project.
    pub source: Option<Source>,
    /// How urgent it is.
    pub class: Class,
    /// Its rules in addition to those of its agent.
    pub rules: Rules,
    /// What it and its subtasks do instead of asking a person.
    pub on_ask: OnAsk,
    /// Whether it works with the environment that its repository proposes, although no admin has allowed it.
    pub tries_environment: bool,
    /// The common budget of the session and its subtasks; `None`: no limit.
    pub budget: Option<UsdPicos>,
    /// The caller's idempotency key.
    pub key: Option<IdempotencyKey>,
}

/// The name that a caller gives to a session before the session exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The caller's key.
    pub name: String,
    /// SHA-256 of the RPC that created the session; `None` if the name alone counts.
    pub body_sha256: Option<[u8; 32]>,
}

/// The condition that a session `$2` of the tenant `$1` was deleted: a loop or a stream of it may still exist somewhere, or its rows or files may. The
/// statement that inserts the control row of a new session checks it, because a deletion may end while the other row is inserted.
pub(crate) const IS_DELETED: &str =
    "(exists (select 1 from session_tombstone where tenant_id = $1 and session_id = $2)
    or exists (select 1 from row_removal where tenant_id = $1 and session_id = $2)
    or exists (select 1 from node_removal where tenant_id = $1 and session_id = $2))";

impl Store {
    /// Returns the session that was created with this key, if it exists.
    ///
    /// # Errors
    /// `Conflict`: the key was used with a different body. `Db`.
    pub async fn find_keyed_session(
        &self,
        tenant: TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<Session>, Error> {
        let mut statements = self.statements(tenant).await?;
        let session = find(&mut statements, tenant, key).await?;
        statements.end();
        Ok(session)
    }
}

/// Inserts the two rows of a new session, and returns it. The caller writes its first event in the same transaction. Returns `None` if the
/// project is missing or the key was already used.
///
/// # Errors
/// `Deleted`, `Db`.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: TenantId,
    new: &NewSession,
) -> Result<Option<Session>, Error> {
    let result = sqlx::query(
        "insert into session (tenant_id, id, project_id, title, agent, provider_id, model_id, source, dedupe, rights,
                              budget_usd_picos, on_ask, agent_chosen, model_chosen, body_sha256, variant, worktree_id, tries_environment, updated_at)
         select $1, $2, p.id, $4, $5, $6, $7, coalesce($8::json, p.source), 'key:' || $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, date_trunc('milliseconds', now())
           from project p where p.tenant_id = $1 and p.id = $3
         on conflict (tenant_id, dedupe) where dedupe is not null do nothing",
    )
    .bind(tenant.0)
    .bind(new.id.as_str())
    .bind(new.project_id.as_str())
    .bind(&new.title)
    .bind(&new.agent)
    .bind(&new.model.provider_id)
    .bind(&new.model.model_id)
    .bind(new.source.as_ref().map(Json))
    .bind(new.key.as_ref().map(|key| &key.name))
    .bind(Json([&new.rules]))
    .bind(new.budget.map(|budget| budget.0))
    .bind(new.on_ask.as_str())
    .bind(new.chosen.agent)
    .bind(new.chosen.model)
    .bind(new.key.as_ref().and_then(|key| key.body_sha256.as_ref()).map(<[u8; 32]>::as_slice))
    .bind(&new.variant)
    .bind(new.worktree_id.as_ref().map(WorktreeId::as_str))
    .bind(new.tries_environment)
    .execute(&mut **tx)
    .await?;
    if result.rows_affected() == 0 {
        return Ok(None);
    }
    let insert = format!(
        "insert into session_run (tenant_id, session_id, event_seq, class, epoch)
         select $1, $2, 1, $3, t.epoch_floor from tenant t where t.id = $1 and not {IS_DELETED}"
    );
    let row = sqlx::query(session_row::write_and_select(&insert, "", ""))
        .bind(tenant.0)
        .bind(new.id.as_str())
        .bind(new.class.to_i16())
        .fetch_optional(&mut **tx)
        .await?
        .ok_or(Error::Deleted)?;
    session_row::from_row(&row).map(Some)
}

/// Returns the session that was created earlier with the key of `new`, after [`insert`] returned `None`.
///
/// # Errors
/// `NotFound`: the project is missing. `Conflict`: the key was used with a different body. `Db`.
pub(crate) async fn get_existing(tx: &mut Tx, tenant: TenantId, new: &NewSession) -> Result<Session, Error> {
    let missing = Error::NotFound(Entity::Project);
    match &new.key {
        Some(key) => find(tx, tenant, key).await?.ok_or(missing),
        None => Err(missing),
    }
}

async fn find(
    connection: &mut PgConnection,
    tenant: TenantId,
    key: &IdempotencyKey,
) -> Result<Option<Session>, Error> {
    let row = sqlx::query(
        "select id, body_sha256 is not distinct from $3 as is_same from session
          where tenant_id = $1 and dedupe = 'key:' || $2",
    )
    .bind(tenant.0)
    .bind(&key.name)
    .bind(key.body_sha256.as_ref().map(<[u8; 32]>::as_slice))
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if !row.try_get("is_same")? {
        return Err(Error::Conflict);
    }
    session_row::read(connection, tenant, &parse_id("session", row.try_get("id")?)?).await.map(Some)
}
