//! Forks: sessions that begin with the history of another session.

use crate::{
    Store, Tx,
    column::signed,
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        messages::{self, MessageWithParts, Side, Slice},
        projection,
    },
    rows::{
        control_row::EXISTS,
        session_row::{self, Session, WORKSPACE_ID},
    },
    session::creation::{self, NewSession},
};
use domain::{
    event::{Event, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
};
use sqlx::{AssertSqlSafe, Row as _};

/// Bytes of the messages of a fork: one transaction copies them. Beyond it: `history_too_large`.
const FORK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Messages that are copied at once.
const MESSAGES_AT_ONCE: i64 = 200;

#[derive(Debug, Clone, Copy)]
pub struct NewFork<'a> {
    /// The origin: the session whose history it copies.
    pub origin: &'a SessionId,
    pub session: &'a NewSession,
    /// The id of its first event.
    pub event_id: &'a EventId,
    /// The position in the origin before which messages are copied.
    pub before_seq: u64,
}

/// Returns the changes that create these messages of the origin in the fork. The messages come in order, each once.
pub type Copy<'a> = dyn FnMut(&[MessageWithParts]) -> Vec<Change> + Send + 'a;

#[derive(Debug, Clone, PartialEq)]
pub struct Fork {
    pub session: Session,
    /// Its first event, for publishing; `None` if the key was used before.
    pub created: Option<StoredEvent>,
}

impl Store {
    /// Creates a session that begins with a copy of the history of its origin, page by page, and has its permissions and its worktree. If the key was
    /// already used, returns the session of that key.
    ///
    /// # Errors
    /// `NotFound` for the origin or the project; `Conflict`: the key was used with a different body; `HistoryTooLarge`; `Db`: created
    /// or not.
    pub async fn fork_session(
        &self,
        tenant: TenantId,
        fork: NewFork<'_>,
        copy: &mut Copy<'_>,
        at: Timestamp,
    ) -> Result<Fork, Error> {
        let NewFork { origin, session: new, event_id, before_seq } = fork;
        let mut tx = self.begin(tenant).await?;
        keep(&mut tx, tenant, origin).await?;
        if creation::insert(&mut tx, tenant, new).await?.is_none() {
            let session = creation::get_existing(&mut tx, tenant, new).await?;
            return Ok(Fork { session, created: None });
        }
        sqlx::query(AssertSqlSafe(format!(
            "update session set rights = s.rights, variant = s.variant, image = w.image, worktree_id = s.worktree_id from session s
               join session w on w.tenant_id = s.tenant_id and w.id = {WORKSPACE_ID}
              where session.tenant_id = $1 and session.id = $2 and s.tenant_id = $1 and s.id = $3"
        )))
        .bind(tenant.0)
        .bind(new.id.as_str())
        .bind(origin.as_str())
        .execute(&mut *tx)
        .await?;
        let session = session_row::read(&mut tx, tenant, &new.id).await?;
        let created = Event::SessionCreated(Box::new(session.info.clone()));
        let created = [Change::event(event_id.clone(), created)];
        let scope = Scope { tenant, session: &new.id, epoch: 0, at };
        let mut events = projection::project(&mut tx, &scope, &created, 1).await?;
        let event_seq = copy_history(&mut tx, &scope, origin, before_seq, copy).await?;
        tx.commit().await?;
        Ok(Fork { session: Session { event_seq, ..session }, created: events.pop() })
    }

    /// Returns the oldest snapshot of a session's files.
    ///
    /// # Errors
    /// `Db`.
    pub async fn find_first_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<String>, Error> {
        let query = sqlx::query(AssertSqlSafe(format!(
            "select data->>'snapshot' as state from part
              where tenant_id = $1 and session_id = $2 and kind in ('step-start', 'snapshot')
                and data->>'snapshot' is not null and {EXISTS}
              order by seq limit 1"
        )))
        .bind(tenant.0)
        .bind(session.as_str());
        let row = self.statements(tenant).await?.fetch_optional(query).await?;
        Ok(row.map(|row| row.try_get("state")).transpose()?)
    }
}

/// Keeps a session until the transaction ends: a deletion in the middle of the copy would leave a part of the history, without the permissions of
/// the session. Its loop and its clients go on meanwhile.
///
/// # Errors
/// `NotFound`; `Db`.
async fn keep(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<(), Error> {
    let kept = sqlx::query("select 1 from session where tenant_id = $1 and id = $2 for key share")
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    kept.map(drop).ok_or(Error::NotFound(Entity::Session))
}

/// Copies the messages of `origin` before a position into the new session of `scope`, whose log has one event. Returns the position of
/// the last event.
async fn copy_history(
    tx: &mut Tx,
    scope: &Scope<'_>,
    origin: &SessionId,
    before_seq: u64,
    copy: &mut Copy<'_>,
) -> Result<u64, Error> {
    let (mut after, mut event_seq, mut bytes) = (0, 1, 0);
    loop {
        let seqs = signed(after) + 1..signed(before_seq);
        let slice = Slice { seqs, side: Side::Oldest, limit: MESSAGES_AT_ONCE };
        let page = messages::read_page(tx, scope.tenant, origin, slice).await?;
        bytes += page.bytes;
        if bytes > FORK_BYTES_MAX {
            return Err(Error::HistoryTooLarge(FORK_BYTES_MAX));
        }
        let changes = copy(&page.entries);
        projection::project(tx, scope, &changes, event_seq + 1).await?;
        event_seq += changes.len() as u64;
        match page.entries.last().filter(|_| page.has_more) {
            Some(last) => after = last.seq,
            None => break,
        }
    }
    sqlx::query(
        "update session_run set event_seq = $3, prompt_bytes = o.prompt_bytes from session_run o
          where session_run.tenant_id = $1 and session_run.session_id = $2 and o.tenant_id = $1 and o.session_id = $4",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(event_seq))
    .bind(origin.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(event_seq)
}
