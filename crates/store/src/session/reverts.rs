//! Taking a session back to an earlier point: a hold that keeps its whole tree from working, the intent before any file is
//! written, and the end. The messages go with the next prompt, in its transaction.
// Continues in gateway::history, which has the files written in between.

use crate::{
    Store,
    error::{Entity, Error},
    log::record::{self, Change, Scope, What},
    parsed,
    session::{
        children, inputs,
        runs::milliseconds,
        sessions::{self, Session},
    },
    signed, unsigned,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits,
    message::FileDiff,
    session::{Changes, Revert},
};
use sqlx::{Postgres, Row as _, Transaction, types::Json};
use uuid::Uuid;

/// Without a revert, or with one that is done: prompts are taken.
const NONE: i16 = 0;
/// Files may be half reverted.
pub(crate) const UNFINISHED: i16 = 1;
/// The next prompt removes what was taken back.
pub(crate) const DONE: i16 = 2;

/// The right to change the files of a session while nothing of its tree may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Whose.
    pub tenant: TenantId,
    /// Which session.
    pub session: SessionId,
    /// Whose files it works in.
    pub root: SessionId,
    /// The number of the right, for the sandbox: higher than that of every loop before.
    pub epoch: u64,
    /// The revert that is set, or was begun.
    pub revert: Option<Revert>,
    /// Whether it was begun and not ended: files may be half reverted.
    pub is_unfinished: bool,
    /// Its name in the control rows of the tree: each that is over, or another one's, has another.
    held_by: Uuid,
}

/// How a hold ends that changed nothing in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No file was written.
    AsBefore,
    /// Nobody knows which files were written: the intent stays.
    Unfinished,
}

/// What a finished revert, or its end, says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What is taken back from now on; `None`: nothing any more.
    pub revert: Option<Revert>,
    /// What the files differ in from the session's first state, if that is known.
    pub diff: Option<Vec<FileDiff>>,
}

impl Store {
    /// Keeps everything of the session's tree from beginning, for `limits::REVERT_HOLD_MS` unless that is renewed, and raises
    /// the session's epoch: whoever worked on it before is shut out of the sandbox from then on.
    ///
    /// # Errors
    /// `NotFound`; `Busy`: something of the tree works or waits, or is held; `Quarantined`; `Db`: held or not, and then free
    /// again after that time.
    pub async fn hold_session(&self, tenant: TenantId, session: &SessionId) -> Result<Hold, Error> {
        let held_by = Uuid::now_v7();
        let mut tx = self.begin(tenant).await?;
        let root = find_root(&mut tx, tenant, session).await?;
        inputs::lock(&mut tx, tenant, &root).await?;
        children::lock_tree(&mut tx, tenant, &root).await?;
        refuse_busy(&mut tx, tenant, (session, &root)).await?;
        sqlx::query(
            "update session_run r set held_until = now() + $4 * interval '1 millisecond', held_by = $5,
                    epoch = r.epoch + case when r.session_id = $3 then 1 else 0 end
               from session s where s.tenant_id = $1 and (s.id = $2 or s.root_id = $2)
                and r.tenant_id = $1 and r.session_id = s.id",
        )
        .bind(tenant.0)
        .bind(root.as_str())
        .bind(session.as_str())
        .bind(milliseconds(limits::REVERT_HOLD_MS))
        .bind(held_by)
        .execute(&mut *tx)
        .await?;
        let row = sqlx::query(
            "select r.epoch, r.revert_state, s.revert
               from session_run r join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
              where r.tenant_id = $1 and r.session_id = $2",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
        let revert = row.try_get::<Option<Json<Revert>>, _>("revert");
        let hold = Hold {
            tenant,
            session: session.clone(),
            root,
            epoch: unsigned(row.try_get("epoch")?),
            revert: revert.map_err(|error| Error::unreadable("revert", error))?.map(|json| json.0),
            is_unfinished: row.try_get::<i16, _>("revert_state")? == UNFINISHED,
            held_by,
        };
        tx.commit().await?;
        Ok(hold)
    }

    /// Makes a hold last `limits::REVERT_HOLD_MS` from now on.
    ///
    /// # Errors
    /// `Busy`: the hold is over, and no file may be written any more. `Db`: renewed or not; do it again.
    pub async fn renew_hold(&self, hold: &Hold) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        inputs::lock(&mut tx, hold.tenant, &hold.root).await?;
        children::lock_tree(&mut tx, hold.tenant, &hold.root).await?;
        // All rows of it or none: where one is free already, something may have begun.
        let row = sqlx::query(
            "with tree as (
               select r.session_id from session s join session_run r on r.tenant_id = s.tenant_id and r.session_id = s.id
                where s.tenant_id = $1 and (s.id = $2 or s.root_id = $2) and r.held_by = $3),
             renewed as (
               update session_run r set held_until = now() + $4 * interval '1 millisecond' from tree
                where r.tenant_id = $1 and r.session_id = tree.session_id and r.held_until > clock_timestamp() returning 1)
             select (select count(*) from renewed) as renewed, (select count(*) from tree) as held",
        )
        .bind(hold.tenant.0)
        .bind(hold.root.as_str())
        .bind(hold.held_by)
        .bind(milliseconds(limits::REVERT_HOLD_MS))
        .fetch_one(&mut *tx)
        .await?;
        let (renewed, held): (i64, i64) = (row.try_get("renewed")?, row.try_get("held")?);
        if renewed == 0 || renewed < held {
            return Err(Error::Busy);
        }
        tx.commit().await?;
        Ok(())
    }

    /// Stores what is about to be done to the files, before any is written.
    ///
    /// # Errors
    /// `Busy`: the hold is over. `Db`: stored or not; do it again.
    pub async fn intend_revert(&self, hold: &Hold, revert: &Revert) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        set_state(&mut tx, hold, (UNFINISHED, 0)).await?;
        set_revert(&mut tx, hold, Some(revert)).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends the hold, with the files as they are wanted. `ids` are for the two events at most. Gives the session.
    ///
    /// # Errors
    /// `Busy`: the hold is over; what was intended is unfinished. `Db`: ended or not.
    pub async fn finish_revert(
        &self,
        hold: &Hold,
        finished: Finished,
        ids: [EventId; 2],
        at: Timestamp,
    ) -> Result<(Session, Vec<Stored>), Error> {
        let Finished { revert, diff } = finished;
        let mut tx = self.begin(hold.tenant).await?;
        let count = 1 + i64::from(diff.is_some());
        let state = if revert.is_some() { DONE } else { NONE };
        let event_seq = set_state(&mut tx, hold, (state, count)).await?;
        set_revert(&mut tx, hold, revert.as_ref()).await?;
        if let Some(diff) = &diff {
            sqlx::query("update session set summary = $3 where tenant_id = $1 and id = $2")
                .bind(hold.tenant.0)
                .bind(hold.session.as_str())
                .bind(Json(Changes::of(diff)))
                .execute(&mut *tx)
                .await?;
        }
        let_go(&mut tx, hold).await?;
        let session = sessions::read(&mut tx, hold.tenant, &hold.session).await?;
        let updated = Event::SessionUpdated(Box::new(session.info.clone()));
        let events = std::iter::once(updated).chain(diff.map(Event::SessionDiff));
        let changes: Vec<Change> =
            ids.into_iter().zip(events).map(|(id, event)| Change { id, what: What::Event(event) }).collect();
        let scope = Scope { tenant: hold.tenant, session: &hold.session, epoch: hold.epoch, at };
        let first = event_seq + 1 - changes.len() as u64;
        let events = record::project(&mut tx, &scope, &changes, first).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Ends the hold without a word in the conversation. Nothing happens when it is over.
    ///
    /// # Errors
    /// `Db`: the hold ends by itself.
    pub async fn release_hold(&self, hold: &Hold, left: Left) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        if left == Left::AsBefore {
            let state = match (&hold.revert, hold.is_unfinished) {
                (None, _) => NONE,
                (Some(_), true) => UNFINISHED,
                (Some(_), false) => DONE,
            };
            match set_state(&mut tx, hold, (state, 0)).await {
                Ok(_) => set_revert(&mut tx, hold, hold.revert.as_ref()).await?,
                Err(Error::Busy) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let_go(&mut tx, hold).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn find_root(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<SessionId, Error> {
    let row =
        sqlx::query("select coalesce(root_id, id) as root from session where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(session.as_str())
            .fetch_optional(&mut **tx)
            .await?
            .ok_or(Error::NotFound(Entity::Session))?;
    parsed(row.try_get("root")?)
}

/// All sessions of a tree work in the same files. Its rows are locked.
async fn refuse_busy(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    (session, root): (&SessionId, &SessionId),
) -> Result<(), Error> {
    let row = sqlx::query(
        "select coalesce(bool_or(r.session_id = $3 and r.phase = 4), false) as quarantined,
                coalesce(bool_or(r.phase in (1, 2, 3) or coalesce(r.held_until > clock_timestamp(), false)), false) as busy
           from session_run r join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
          where r.tenant_id = $1 and (s.id = $2 or s.root_id = $2)",
    )
    .bind(tenant.0)
    .bind(root.as_str())
    .bind(session.as_str())
    .fetch_one(&mut **tx)
    .await?;
    if row.try_get("quarantined")? {
        return Err(Error::Quarantined);
    }
    if row.try_get("busy")? { Err(Error::Busy) } else { Ok(()) }
}

/// Advances the control row, if the hold is still this one and lasts. Gives the newest event's place.
async fn set_state(
    tx: &mut Transaction<'static, Postgres>,
    hold: &Hold,
    (state, events): (i16, i64),
) -> Result<u64, Error> {
    let row = sqlx::query(
        "update session_run set revert_state = $5, event_seq = event_seq + $6
          where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = 0
            and held_by = $4 and held_until > clock_timestamp()
         returning event_seq",
    )
    .bind(hold.tenant.0)
    .bind(hold.session.as_str())
    .bind(signed(hold.epoch))
    .bind(hold.held_by)
    .bind(state)
    .bind(events)
    .fetch_optional(&mut **tx)
    .await?
    .ok_or(Error::Busy)?;
    Ok(unsigned(row.try_get("event_seq")?))
}

async fn set_revert(
    tx: &mut Transaction<'static, Postgres>,
    hold: &Hold,
    revert: Option<&Revert>,
) -> Result<(), Error> {
    sqlx::query(
        "update session set revert = $3, updated_at = date_trunc('milliseconds', now()) where tenant_id = $1 and id = $2",
    )
    .bind(hold.tenant.0)
    .bind(hold.session.as_str())
    .bind(revert.map(Json))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Frees the tree of this hold, and of no later one.
async fn let_go(tx: &mut Transaction<'static, Postgres>, hold: &Hold) -> Result<(), Error> {
    sqlx::query(
        "update session_run r set held_until = null, held_by = null
           from session s where s.tenant_id = $1 and (s.id = $2 or s.root_id = $2)
            and r.tenant_id = $1 and r.session_id = s.id and r.held_by = $3",
    )
    .bind(hold.tenant.0)
    .bind(hold.root.as_str())
    .bind(hold.held_by)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Removes what was taken back, for the prompt that comes now; the caller holds the control row. Gives the events for it;
/// the rows of messages and parts go when these are projected.
pub(crate) async fn forget(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Vec<Event>, Error> {
    let found = sessions::read(tx, tenant, session).await?;
    let mut events = vec![];
    if let Some(revert) = &found.info.revert {
        events = removals(tx, tenant, session, revert).await?;
    }
    sqlx::query("update session set revert = null where tenant_id = $1 and id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .execute(&mut **tx)
        .await?;
    sqlx::query("update session_run set revert_state = $3 where tenant_id = $1 and session_id = $2")
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(NONE)
        .execute(&mut **tx)
        .await?;
    let info = domain::session::Info { revert: None, ..found.info };
    events.push(Event::SessionUpdated(Box::new(info)));
    Ok(events)
}

/// The parts and messages that go, newest first: a reader never has an answer without its question.
async fn removals(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
    revert: &Revert,
) -> Result<Vec<Event>, Error> {
    let rows = sqlx::query(
        "select m.id from message m join message p on p.tenant_id = m.tenant_id and p.session_id = m.session_id and p.id = $3
          where m.tenant_id = $1 and m.session_id = $2 and (m.seq > p.seq or (m.seq = p.seq and $4)) order by m.seq desc",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(revert.message_id.as_str())
    .bind(revert.part_id.is_none())
    .fetch_all(&mut **tx)
    .await?;
    let mut events = vec![];
    for row in &rows {
        events.push(Event::MessageRemoved(parsed(row.try_get("id")?)?));
    }
    let Some(part_id) = &revert.part_id else { return Ok(events) };
    let rows = sqlx::query(
        "select q.id from part q join part p on p.tenant_id = q.tenant_id and p.session_id = q.session_id
            and p.message_id = q.message_id and p.id = $4
          where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $3 and (q.seq, q.id) >= (p.seq, p.id)
          order by q.seq desc, q.id desc",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(revert.message_id.as_str())
    .bind(part_id.as_str())
    .fetch_all(&mut **tx)
    .await?;
    for row in &rows {
        let part_id = parsed(row.try_get("id")?)?;
        events.push(Event::PartRemoved { message_id: revert.message_id.clone(), part_id });
    }
    Ok(events)
}
