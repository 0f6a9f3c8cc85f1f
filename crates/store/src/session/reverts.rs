//! Reverts a session to an earlier point. A hold prevents the whole tree from working. The intent is stored before the first
//! file is written, and the end after the last one. The next prompt removes the messages, in its own transaction.
// Continues in gateway::app::history::revert, which writes the files in between.

use crate::{
    Store, Tx,
    column::{milliseconds, parse_id, signed, unsigned},
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        projection,
    },
    phase::{IDLE, QUARANTINED},
    rows::{
        control_row::{self, RevertState},
        session_row::{self, Session, WORKSPACE_ID},
    },
    session::tree::family,
};
use domain::{
    conversation::message::FileDiff,
    event::{Event, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits,
    session::{Changes, Revert},
};
use sqlx::{AssertSqlSafe, Row as _, types::Json};
use uuid::Uuid;

/// The right to change the files of a session. Nothing in its tree can begin meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub tenant: TenantId,
    pub session: SessionId,
    /// Its root session: the hold covers the whole tree.
    pub root: SessionId,
    /// The session whose workspace it uses.
    pub workspace: SessionId,
    /// How often these files started from their source again after they were lost.
    pub workspace_opening: u32,
    /// The epoch for the sandbox: higher than that of every earlier loop.
    pub epoch: u64,
    /// The finished revert, or an earlier one that did not end.
    pub revert: Option<Revert>,
    /// Whether that revert did not end: the files may be half reverted.
    pub is_unfinished: bool,
    /// The id of this hold in the control rows of the tree, unique for each hold.
    held_by: Uuid,
}

/// The state of the files when a hold ends without a revert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldRelease {
    /// No file was written.
    Unchanged,
    /// Some files may have been written: the stored intent stays.
    Unfinished,
}

/// The result of a revert, or of undoing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertResult {
    /// The revert that applies from now on; `None`: no revert.
    pub revert: Option<Revert>,
    /// The difference between the files and the session's initial state, if that state is known.
    pub diff: Option<Vec<FileDiff>>,
}

impl Store {
    /// Prevents everything in the session's tree from beginning, for `limits::REVERT_HOLD_MS` unless the hold is renewed. Raises
    /// the session's epoch, so the sandbox refuses its earlier loops from then on.
    ///
    /// # Errors
    /// `NotFound`; `Busy`: a session of the tree works or waits, or another hold exists; `Quarantined`; `Db`: held or not; a hold
    /// expires by itself after that time.
    pub async fn hold_session(&self, tenant: TenantId, session: &SessionId) -> Result<Hold, Error> {
        let held_by = Uuid::now_v7();
        let mut tx = self.begin(tenant).await?;
        let root = find_root(&mut tx, tenant, session).await?;
        control_row::lock(&mut tx, tenant, &root).await?;
        family::lock_tree(&mut tx, tenant, &root).await?;
        refuse_busy(&mut tx, tenant, session, &root).await?;
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
        let row = sqlx::query(AssertSqlSafe(format!(
            "select r.epoch, r.revert_state, s.revert, w.id as workspace, w.workspace_opening
               from session_run r join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
               join session w on w.tenant_id = s.tenant_id and w.id = {WORKSPACE_ID}
              where r.tenant_id = $1 and r.session_id = $2"
        )))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
        let revert = row.try_get::<Option<Json<Revert>>, _>("revert");
        let state = RevertState::from_column(row.try_get("revert_state")?)?;
        let hold = Hold {
            tenant,
            session: session.clone(),
            root,
            workspace: parse_id("session", row.try_get("workspace")?)?,
            workspace_opening: u32::try_from(row.try_get::<i32, _>("workspace_opening")?).unwrap_or_default(),
            epoch: unsigned(row.try_get("epoch")?),
            revert: revert.map_err(|error| Error::unreadable("revert", error))?.map(|json| json.0),
            is_unfinished: state == RevertState::Unfinished,
            held_by,
        };
        tx.commit().await?;
        Ok(hold)
    }

    /// Extends a hold to `limits::REVERT_HOLD_MS` from now.
    ///
    /// # Errors
    /// `Busy`: the hold has expired, and the gateway must stop writing files. `Db`: renewed or not; try again.
    pub async fn renew_hold(&self, hold: &Hold) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        control_row::lock(&mut tx, hold.tenant, &hold.root).await?;
        family::lock_tree(&mut tx, hold.tenant, &hold.root).await?;
        // All rows of the tree or none: if one of them is already free, its session may have begun to work.
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

    /// Stores the intent, before the gateway writes any file.
    ///
    /// # Errors
    /// `Busy`: the hold has expired. `Db`: stored or not; try again.
    pub async fn intend_revert(&self, hold: &Hold, revert: &Revert) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        set_state(&mut tx, hold, RevertState::Unfinished, 0).await?;
        set_revert(&mut tx, hold, Some(revert)).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends the hold after the last file was written. `ids` are for at most two events. Returns the session and the
    /// events.
    ///
    /// # Errors
    /// `Busy`: the hold has expired; the intent stays unfinished. `Db`: ended or not.
    pub async fn finish_revert(
        &self,
        hold: &Hold,
        result: RevertResult,
        ids: [EventId; 2],
        at: Timestamp,
    ) -> Result<(Session, Vec<StoredEvent>), Error> {
        let RevertResult { revert, diff } = result;
        let mut tx = self.begin(hold.tenant).await?;
        let count = 1 + i64::from(diff.is_some());
        let state = if revert.is_some() { RevertState::Done } else { RevertState::None };
        let event_seq = set_state(&mut tx, hold, state, count).await?;
        set_revert(&mut tx, hold, revert.as_ref()).await?;
        if let Some(diff) = &diff {
            sqlx::query("update session set summary = $3 where tenant_id = $1 and id = $2")
                .bind(hold.tenant.0)
                .bind(hold.session.as_str())
                .bind(Json(Changes::of(diff)))
                .execute(&mut *tx)
                .await?;
        }
        free_tree(&mut tx, hold).await?;
        let session = session_row::read(&mut tx, hold.tenant, &hold.session).await?;
        let updated = Event::SessionUpdated(Box::new(session.info.clone()));
        let events = std::iter::once(updated).chain(diff.map(Event::SessionDiff));
        let changes: Vec<Change> =
            ids.into_iter().zip(events).map(|(id, event)| Change::event(id, event)).collect();
        let scope = Scope { tenant: hold.tenant, session: &hold.session, epoch: hold.epoch, at };
        let first = event_seq + 1 - changes.len() as u64;
        let events = projection::project(&mut tx, &scope, &changes, first).await?;
        tx.commit().await?;
        Ok((session, events))
    }

    /// Ends the hold without an event. Does nothing if the hold has expired.
    ///
    /// # Errors
    /// `Db`: the hold expires by itself.
    pub async fn release_hold(&self, hold: &Hold, release: HoldRelease) -> Result<(), Error> {
        let mut tx = self.begin(hold.tenant).await?;
        if release == HoldRelease::Unchanged {
            let state = match (&hold.revert, hold.is_unfinished) {
                (None, _) => RevertState::None,
                (Some(_), true) => RevertState::Unfinished,
                (Some(_), false) => RevertState::Done,
            };
            match set_state(&mut tx, hold, state, 0).await {
                Ok(_) => set_revert(&mut tx, hold, hold.revert.as_ref()).await?,
                Err(Error::Busy) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        free_tree(&mut tx, hold).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn find_root(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<SessionId, Error> {
    let row =
        sqlx::query("select coalesce(root_id, id) as root from session where tenant_id = $1 and id = $2")
            .bind(tenant.0)
            .bind(session.as_str())
            .fetch_optional(&mut **tx)
            .await?
            .ok_or(Error::NotFound(Entity::Session))?;
    parse_id("session", row.try_get("root")?)
}

/// Refuses a revert while any session of the tree has work, because most of them work in the same files. The caller holds their
/// control rows.
async fn refuse_busy(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    root: &SessionId,
) -> Result<(), Error> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "select coalesce(bool_or(r.session_id = $3 and r.phase = {QUARANTINED}), false) as quarantined,
                coalesce(bool_or(r.phase not in ({IDLE}, {QUARANTINED})
                                 or coalesce(r.held_until > clock_timestamp(), false)), false) as busy
           from session_run r join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
          where r.tenant_id = $1 and (s.id = $2 or s.root_id = $2)"
    )))
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

/// Advances the control row by the number of `events`, if the hold is still valid. Returns the position of the newest
/// event.
async fn set_state(tx: &mut Tx, hold: &Hold, state: RevertState, events: i64) -> Result<u64, Error> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "update session_run set revert_state = $5, event_seq = event_seq + $6
          where tenant_id = $1 and session_id = $2 and epoch = $3 and phase = {IDLE}
            and held_by = $4 and held_until > clock_timestamp()
         returning event_seq"
    )))
    .bind(hold.tenant.0)
    .bind(hold.session.as_str())
    .bind(signed(hold.epoch))
    .bind(hold.held_by)
    .bind(state.to_i16())
    .bind(events)
    .fetch_optional(&mut **tx)
    .await?
    .ok_or(Error::Busy)?;
    Ok(unsigned(row.try_get("event_seq")?))
}

async fn set_revert(tx: &mut Tx, hold: &Hold, revert: Option<&Revert>) -> Result<(), Error> {
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

/// Frees the tree, unless a later hold covers it.
async fn free_tree(tx: &mut Tx, hold: &Hold) -> Result<(), Error> {
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
