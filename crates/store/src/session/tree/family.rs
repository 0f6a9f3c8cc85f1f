//! Trees of sessions: a root and its subtasks. Every transaction that locks several control rows of a tree locks them from the
//! root to the leaves, so an abort on its way down and an answer on its way up never wait for each other.

use crate::{
    Store, Tx,
    column::{parse_id, unsigned},
    error::{Entity, Error},
    phase::IDLE,
    rows::{
        control_row::{self, ControlRow},
        session_row::{self, ParentCall},
    },
    session::mailbox::Mailbox,
};
use domain::{
    ids::{SessionId, TenantId},
    limits,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// A session below another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descendant {
    pub session: SessionId,
    /// Whether it has work.
    pub works: bool,
    /// The epoch: the number of its newest takeover.
    pub epoch: u64,
}

impl Store {
    /// Lists the sessions below one session, nearest first: those that an abort or a deletion reaches.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_descendants(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Vec<Descendant>, Error> {
        // `limit 1` makes Postgres look up each session below: it does not know how few they are.
        let sql = format!(
            "with recursive tree as (
               select id, depth from session where tenant_id = $1 and parent_id = $2
               union all
               select s.id, s.depth from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
             select t.id, r.phase <> {IDLE} as works, r.epoch from tree t cross join lateral (
               select phase, epoch from session_run where tenant_id = $1 and session_id = t.id limit 1) r
              order by t.depth limit $3"
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(limits::SUBTASKS_PER_TREE_MAX);
        let rows = self.statements(tenant).await?.fetch_all(query).await?;
        let descendant = |row: &PgRow| {
            Ok(Descendant {
                session: parse_id("session", row.try_get("id")?)?,
                works: row.try_get("works")?,
                epoch: unsigned(row.try_get("epoch")?),
            })
        };
        rows.iter().map(descendant).collect()
    }
}

/// A parent whose control row the transaction holds.
pub(crate) struct Parent {
    pub(crate) session: SessionId,
    pub(crate) run: ControlRow,
}

impl Parent {
    pub(crate) fn mailbox(&self, tenant: TenantId) -> Mailbox<'_> {
        Mailbox { tenant, session: &self.session, run: &self.run }
    }
}

/// Locks a parent before its child is locked. Returns `None` if the parent was deleted.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn lock_parent(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<Parent>, Error> {
    match control_row::lock(tx, tenant, session).await {
        Ok(run) => Ok(Some(Parent { session: session.clone(), run })),
        Err(Error::NotFound(Entity::Session)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks the root above a session, unless the session itself is the root. The transaction that creates a child counts the
/// tree. Without this lock two transactions could count at once, and both would find room for the last child.
///
/// # Errors
/// `Db`.
pub(crate) async fn lock_root(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<(), Error> {
    // The id of a root never changes. If the tree is deleted meanwhile, the fence finds no row.
    sqlx::query(
        "select 1 from session_run r where r.tenant_id = $1 and r.session_id =
           (select s.root_id from session s where s.tenant_id = $1 and s.id = $2) for update",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Locks the parent of a session, and returns the parent's call that the session answers. While the parent is locked, no
/// other transaction can give the child another call. Returns `None` for a root, and if the parent was deleted.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn lock_call(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<(Parent, ParentCall)>, Error> {
    let Some(before) = find_call(tx, tenant, session).await? else { return Ok(None) };
    let Some(parent) = lock_parent(tx, tenant, &before.session).await? else { return Ok(None) };
    Ok(find_call(tx, tenant, session).await?.map(|call| (parent, call)))
}

/// Locks every control row below a session, nearest first. A transaction that then deletes the rows cannot deadlock with a
/// loop.
///
/// # Errors
/// `Db`.
pub(crate) async fn lock_tree(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<(), Error> {
    // While this transaction waited for a lock, the holder may have made a child. A session whose row is locked cannot create
    // children, so this loop terminates.
    let mut locked = None;
    loop {
        let now = lock_below(tx, tenant, session).await?;
        if locked == Some(now) {
            return Ok(());
        }
        locked = Some(now);
    }
}

/// Locks the rows that are currently below a session, and returns their number.
async fn lock_below(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<u64, Error> {
    // The lock inside makes Postgres look up each session below: it does not know how few they are.
    let result = sqlx::query(
        "with recursive tree as (
           select id, depth from session where tenant_id = $1 and parent_id = $2
           union all
           select s.id, s.depth from session s join tree t on s.parent_id = t.id where s.tenant_id = $1)
         select 1 from (select id from tree order by depth) t cross join lateral (
           select 1 from session_run where tenant_id = $1 and session_id = t.id for update) r",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(result.rows_affected())
}

/// Returns the parent's call that a session answers, if the session is a child.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn find_call(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Option<ParentCall>, Error> {
    let row = sqlx::query(
        "select parent_id, parent_message_id, parent_part_id from session where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .fetch_optional(&mut **tx)
    .await?;
    row.map_or(Ok(None), |row| session_row::parent_call(&row))
}
