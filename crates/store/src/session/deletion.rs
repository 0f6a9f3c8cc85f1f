//! Deletes sessions with everything that belongs to them. A tombstone stays for a while, for event streams that resume
//! later. The transaction is short: messages, parts and events become unreachable and are removed later.
// Continues in control::removals::rows, which removes the rows.

use crate::{
    Store, Tx,
    audit::AuditNote,
    column::{milliseconds, parse_id, signed, timestamp, unsigned},
    control::{candidate::SessionRef, removals::Removal, retention},
    error::Error,
    log::feed::Horizon,
    rows::{
        control_row,
        session_row::{DIRECTORY, ParentCall},
    },
    session::tree::{
        answers::{self, ChildAnswer},
        family,
    },
    tenant::retention::Retention,
};
use domain::{
    conversation::message::ModelRef,
    event::{Event, StoredEvent},
    ids::{ProjectId, SessionId, TenantId, Timestamp},
    money::{Tokens, UsdPicos},
    session::{Info, InfoTime, WORKSPACE},
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// Time for which the gateway that deleted a session may remove its files before workers try it as well; milliseconds. Most removals take
/// less than a second.
const FIRST_ATTEMPT_MS: u64 = 5_000;

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The parent that waited for the session. It received the answer that the session failed.
    pub parent: Option<SessionId>,
    /// The session and all sessions below it, itself last.
    pub tombstones: Vec<Tombstone>,
    /// Their files, which the sandbox must remove. Workers see to it if the caller does not.
    pub removals: Vec<Removal>,
}

/// The record that remains of a deleted session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    pub session: SessionId,
    pub project: ProjectId,
    /// The name by which clients knew where it worked: the directory of its worktree, or else the name of its project.
    pub directory: String,
    pub parent: Option<SessionId>,
    /// The epoch: the number of its last takeover.
    pub epoch: u64,
    /// Position of its last event.
    pub event_seq: u64,
    pub created_at: Timestamp,
    pub deleted_at: Timestamp,
}

impl Tombstone {
    /// The event of the deletion. Every call gives the same event.
    pub fn event(&self) -> StoredEvent {
        let info = Info {
            id: self.session.clone(),
            project_id: self.project.clone(),
            directory: WORKSPACE.to_owned(),
            parent_id: self.parent.clone(),
            title: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: String::new(),
            model: ModelRef { provider_id: String::new(), model_id: String::new() }.into(),
            cost: UsdPicos::default(),
            tokens: Tokens::default(),
            summary: None,
            revert: None,
            permission: vec![],
            time: InfoTime { created: self.created_at, updated: self.deleted_at, archived: None },
        };
        let event = Event::SessionDeleted(Box::new(info));
        StoredEvent {
            seq: self.event_seq + 1,
            epoch: self.epoch,
            // Derived from the session's id, so that a client recognizes a repeated event.
            id: self.session.as_str().replacen("ses_", "evt_", 1),
            kind: event.kind().to_owned(),
            properties: event.properties(&self.session).to_string(),
            at: self.deleted_at,
        }
    }
}

impl Store {
    /// Deletes a session with everything that belongs to it and all sessions below it. A parent that waits for it receives
    /// the answer that it failed.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn delete_session(&self, tenant: TenantId, id: &SessionId) -> Result<Deletion, Error> {
        let mut tx = self.begin(tenant).await?;
        let call = lock_all(&mut tx, tenant, id).await?;
        let deletion = delete(&mut tx, tenant, id, call).await?;
        self.note(&mut tx, AuditNote::of(tenant, "session.delete", id.as_str())).await?;
        tx.commit().await?;
        Ok(deletion)
    }

    /// Deletes a root session with its subtasks if it is kept for no longer. `None`: it is, because somebody has used it meanwhile.
    ///
    /// # Errors
    /// `NotFound` or `Db`.
    pub async fn expire_session(
        &self,
        session: &SessionRef,
        platform: Retention,
    ) -> Result<Option<Deletion>, Error> {
        let SessionRef { tenant, session } = session;
        let mut tx = self.begin(*tenant).await?;
        let call = lock_all(&mut tx, *tenant, session).await?;
        let [idle_days, archived_days] = platform.columns();
        let sql = format!(
            "select 1 from tenant t join session s on s.tenant_id = t.id
               join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
              where t.id = $3 and s.id = $4 and {}",
            retention::is_expired()
        );
        let expired = sqlx::query(AssertSqlSafe(sql)).bind(idle_days).bind(archived_days).bind(tenant.0);
        if expired.bind(session.as_str()).fetch_optional(&mut *tx).await?.is_none() {
            return Ok(None);
        }
        let deletion = delete(&mut tx, *tenant, session, call).await?;
        tx.commit().await?;
        Ok(Some(deletion))
    }

    /// Lists the sessions that were deleted in transactions since `since`, children before their parents. Tombstones are kept for `limits::TOMBSTONE_KEPT_MS`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_deleted(&self, tenant: TenantId, since: Horizon) -> Result<Vec<Tombstone>, Error> {
        let query = sqlx::query(
            "select t.session_id, t.project_id, coalesce(t.project_name, p.name, '') as directory, t.parent_id, t.event_seq,
                    t.epoch, t.created_at, t.deleted_at
               from session_tombstone t
               left join project p on p.tenant_id = t.tenant_id and p.id = t.project_id
              where t.tenant_id = $1 and t.xid >= $2::text::xid8
              order by t.deleted_at, t.created_at desc, t.session_id desc",
        )
        .bind(tenant.0)
        .bind(since.to_string());
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        rows.iter().map(tombstone).collect()
    }
}

/// Locks a session, the parent that waits for it, and all sessions below it, from the root to the leaves. Returns the parent's call.
async fn lock_all(
    tx: &mut Tx,
    tenant: TenantId,
    id: &SessionId,
) -> Result<Option<(family::Parent, ParentCall)>, Error> {
    let call = family::lock_call(tx, tenant, id).await?;
    control_row::lock(tx, tenant, id).await?;
    family::lock_tree(tx, tenant, id).await?;
    Ok(call)
}

/// Deletes a session that [`lock_all`] locked.
async fn delete(
    tx: &mut Tx,
    tenant: TenantId,
    id: &SessionId,
    call: Option<(family::Parent, ParentCall)>,
) -> Result<Deletion, Error> {
    if let Some((parent, call)) = &call {
        let answer = ChildAnswer::failed(call, id, "The subtask's session was deleted.");
        answers::deliver(tx, tenant, parent, &answer).await?;
    }
    let tombstones = bury(tx, tenant, id).await?;
    let removals = order_removals(tx, tenant, &tombstones).await?;
    sqlx::query("delete from session where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(Deletion { parent: call.map(|(_, call)| call.session), tombstones, removals })
}

/// Inserts the tombstones of a session and all sessions below it. The transaction holds their control rows.
async fn bury(tx: &mut Tx, tenant: TenantId, id: &SessionId) -> Result<Vec<Tombstone>, Error> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "with recursive tree as (
           select tenant_id, id, project_id, worktree_id, parent_id, created_at from session where tenant_id = $1 and id = $2
           union all
           select s.tenant_id, s.id, s.project_id, s.worktree_id, s.parent_id, s.created_at from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
         insert into session_tombstone (tenant_id, session_id, project_id, project_name, parent_id, event_seq, epoch, created_at)
         select s.tenant_id, s.id, s.project_id, {DIRECTORY}, s.parent_id, r.event_seq, r.epoch, s.created_at
           from tree s join session_run r on r.tenant_id = $1 and r.session_id = s.id
         -- `project_name` has the directory. A new name of the column would break the gateways of the version before, which run during an update.
         -- Earlier versions let a client create a session again within a week.
         on conflict (tenant_id, session_id) do update
           set project_id = excluded.project_id, project_name = excluded.project_name, parent_id = excluded.parent_id,
               event_seq = excluded.event_seq,
               epoch = greatest(session_tombstone.epoch, excluded.epoch), created_at = excluded.created_at,
               deleted_at = excluded.deleted_at, xid = excluded.xid
         returning session_id, project_id, project_name as directory, parent_id, event_seq, epoch, created_at, deleted_at"
    )))
    .bind(tenant.0)
    .bind(id.as_str())
    .fetch_all(&mut **tx)
    .await?;
    let mut tombstones = rows.iter().map(tombstone).collect::<Result<Vec<_>, _>>()?;
    tombstones.sort_by(|a, b| (b.created_at, &b.session).cmp(&(a.created_at, &a.session)));
    Ok(tombstones)
}

/// Stores which files the sandbox must remove. A loop that still runs is fenced, because its control row is gone; the epoch of the removal fences
/// its calls to the sandbox as well.
async fn order_removals(
    tx: &mut Tx,
    tenant: TenantId,
    tombstones: &[Tombstone],
) -> Result<Vec<Removal>, Error> {
    let removal = |tombstone: &Tombstone| Removal {
        tenant,
        session: tombstone.session.clone(),
        epoch: tombstone.epoch.saturating_add(1),
    };
    let removals: Vec<Removal> = tombstones.iter().map(removal).collect();
    let sessions: Vec<&str> = removals.iter().map(|removal| removal.session.as_str()).collect();
    let epochs: Vec<i64> = removals.iter().map(|removal| signed(removal.epoch)).collect();
    sqlx::query(
        "insert into node_removal (tenant_id, session_id, epoch, next_at)
         select $1, session, epoch, now() + $4 * interval '1 millisecond' from unnest($2::text[], $3::bigint[]) as t (session, epoch)
         on conflict (tenant_id, session_id) do update
           set epoch = greatest(node_removal.epoch, excluded.epoch), next_at = excluded.next_at",
    )
    .bind(tenant.0)
    .bind(&sessions)
    .bind(&epochs)
    .bind(milliseconds(FIRST_ATTEMPT_MS))
    .execute(&mut **tx)
    .await?;
    Ok(removals)
}

fn tombstone(row: &PgRow) -> Result<Tombstone, Error> {
    let parent = row.try_get::<Option<&str>, _>("parent_id")?;
    Ok(Tombstone {
        session: parse_id("tombstone", row.try_get("session_id")?)?,
        project: parse_id("tombstone", row.try_get("project_id")?)?,
        directory: row.try_get("directory")?,
        parent: parent.map(|id| parse_id("tombstone", id)).transpose()?,
        epoch: unsigned(row.try_get("epoch")?),
        event_seq: unsigned(row.try_get("event_seq")?),
        created_at: timestamp(row.try_get("created_at")?),
        deleted_at: timestamp(row.try_get("deleted_at")?),
    })
}
