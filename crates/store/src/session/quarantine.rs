//! Sessions that no worker may run: they ended their worker too often, or an operator stopped them. The epoch is raised, so
//! the store and the sandbox refuse the writes of a loop that still runs. An operator's release lets them continue.

use crate::{
    Store, Tx,
    audit::AuditNote,
    column::unsigned,
    error::Error,
    log::{
        change::{Change, Scope},
        projection,
    },
    phase::{QUARANTINED, RUNNABLE, RUNNING, WAITING},
    session::tree::{
        answers::{self, ChildAnswer},
        family,
    },
};
use domain::{
    conversation::message,
    event::{Event, Status, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits,
    session::Class,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// The result of quarantining a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    pub events: Vec<StoredEvent>,
    /// The new epoch, for the sandbox.
    pub epoch: u64,
    /// Its class, which is the class of its whole tree.
    pub class: Class,
    /// The parent that received an answer.
    pub parent: Option<SessionId>,
}

/// The sessions that may be quarantined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineRule {
    /// Only a session that failed too often and that no living worker owns.
    Exhausted,
    /// Any session that has work.
    Any,
}

/// Code of the error that a quarantined session shows.
const QUARANTINED_CODE: &str = "session_quarantined";

/// The control row after the session was quarantined or released.
struct RunState {
    epoch: u64,
    /// Position of the newest event, including the reserved positions of the quarantine or release events.
    event_seq: u64,
    class: Class,
}

impl Store {
    /// Quarantines a session, and notifies its subscribers and its parent. Returns `None` if `rule` does not allow it.
    ///
    /// # Errors
    /// `Db`.
    pub async fn quarantine(
        &self,
        tenant: TenantId,
        session: &SessionId,
        rule: QuarantineRule,
        notice: Notice<'_>,
    ) -> Result<Option<Quarantine>, Error> {
        let Notice { reason, event_ids, at } = notice;
        let mut tx = self.begin(tenant).await?;
        let call = family::lock_call(&mut tx, tenant, session).await?;
        let Some(stopped) = stop(&mut tx, tenant, session, rule, reason).await? else { return Ok(None) };
        let events = [
            Event::SessionQuarantined { reason: reason.to_owned() },
            Event::SessionError(message::Error::coded(QUARANTINED_CODE, reason)),
            // A client that does not know quarantine must not wait for a turn that does not continue.
            Event::SessionStatus(Status::Idle),
        ];
        let changes: Vec<Change> =
            event_ids.into_iter().zip(events).map(|(id, event)| Change::event(id, event)).collect();
        let scope = Scope { tenant, session, epoch: stopped.epoch, at };
        let first = stopped.event_seq + 1 - changes.len() as u64;
        let events = projection::project(&mut tx, &scope, &changes, first).await?;
        if let Some((parent, call)) = &call {
            let answer = ChildAnswer::failed(call, session, &format!("The subtask was stopped: {reason}."));
            answers::deliver(&mut tx, tenant, parent, &answer).await?;
        }
        self.note(&mut tx, AuditNote::of(tenant, "session.kill", session.as_str())).await?;
        tx.commit().await?;
        let parent = call.map(|(_, call)| call.session);
        Ok(Some(Quarantine { events, epoch: stopped.epoch, class: stopped.class, parent }))
    }

    /// Releases a quarantined session and resets its attempts. Returns the events and its class; `None` if it is not
    /// quarantined.
    ///
    /// # Errors
    /// `Db`.
    pub async fn release(
        &self,
        tenant: TenantId,
        session: &SessionId,
        event_id: EventId,
        at: Timestamp,
    ) -> Result<Option<(Vec<StoredEvent>, Class)>, Error> {
        let mut tx = self.begin(tenant).await?;
        let sql = format!(
            "update session_run set phase = {RUNNABLE}, attempts = 0, queued_at = now(), event_seq = event_seq + 1,
                    waiting_reason = null, waiting_detail = null
              where tenant_id = $1 and session_id = $2 and phase = {QUARANTINED} returning epoch, event_seq, class"
        );
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(session.as_str())
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let released = RunState::from_row(&row)?;
        let scope = Scope { tenant, session, epoch: released.epoch, at };
        let changes = [Change::event(event_id, Event::SessionReleased)];
        let events = projection::project(&mut tx, &scope, &changes, released.event_seq).await?;
        self.note(&mut tx, AuditNote::of(tenant, "session.release", session.as_str())).await?;
        tx.commit().await?;
        Ok(Some((events, released.class)))
    }
}

/// The notice of a quarantine to clients.
#[derive(Debug, Clone)]
pub struct Notice<'a> {
    /// The reason, in a few words.
    pub reason: &'a str,
    /// Ids for its three events.
    pub event_ids: [EventId; 3],
    /// The time of the events.
    pub at: Timestamp,
}

impl RunState {
    fn from_row(row: &PgRow) -> Result<Self, Error> {
        Ok(Self {
            epoch: unsigned(row.try_get("epoch")?),
            event_seq: unsigned(row.try_get("event_seq")?),
            class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        })
    }
}

/// Takes the session from its owner and reserves the positions of three events. Returns `None` if `rule` does not
/// allow it.
async fn stop(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    rule: QuarantineRule,
    reason: &str,
) -> Result<Option<RunState>, Error> {
    let sql = format!(
        "update session_run r set phase = {QUARANTINED}, epoch = epoch + 1, write_seq = 0, event_seq = event_seq + 3,
                owner = null, owned_at = null, wake_at = null, waiting_reason = null, waiting_detail = $3,
                waiting_at = now()
          where r.tenant_id = $1 and r.session_id = $2 and r.phase in ({RUNNABLE}, {RUNNING}, {WAITING})
            and ($4 or (r.attempts >= $5
                 and (r.phase = {RUNNABLE} or not coalesce(worker_alive(r.owner), false))))
         returning epoch, event_seq, class"
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(reason)
        .bind(rule == QuarantineRule::Any)
        .bind(limits::ATTEMPTS_MAX)
        .fetch_optional(&mut **tx)
        .await?;
    row.as_ref().map(RunState::from_row).transpose()
}
