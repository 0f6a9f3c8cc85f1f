//! Sessions that nobody may run: they ended their worker too often, or an operator stopped them. The right to write is
//! raised, so that whatever still runs is refused, and an operator's release lets them go on.

use crate::{
    Store,
    error::Error,
    log::record::{self, Change, Scope, What},
    session::children,
    unsigned,
};
use domain::{
    event::{Event, Status, Stored},
    ids::{EventId, SessionId, TenantId, Timestamp},
    limits, message,
    session::Class,
};
use sqlx::{Postgres, Row as _, Transaction};

/// A session that was taken out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Its events, for publishing.
    pub events: Vec<Stored>,
    /// The new number of the right to write: what the sandbox must be told.
    pub epoch: u64,
    /// Its class, which is that of its whole tree.
    pub class: Class,
    /// The parent that was told.
    pub parent: Option<SessionId>,
}

/// Which sessions may be taken out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Only one that was tried too often and that nobody runs.
    Exhausted,
    /// Any that has work.
    Any,
}

/// Name of the error that a quarantined session shows.
const ERROR: &str = "QuarantinedError";

impl Store {
    /// Takes a session out of service and tells whoever watches, and its parent. Gives `None` when it is not one of
    /// `which`.
    ///
    /// # Errors
    /// `Db`.
    pub async fn quarantine(
        &self,
        tenant: TenantId,
        session: &SessionId,
        (which, reason): (Which, &str),
        event_ids: [EventId; 3],
        at: Timestamp,
    ) -> Result<Option<Quarantined>, Error> {
        let mut tx = self.begin(tenant).await?;
        let call = children::lock_call(&mut tx, tenant, session).await?;
        let Some((epoch, event_seq, class)) = stop(&mut tx, tenant, session, (which, reason)).await? else {
            return Ok(None);
        };
        let events = [
            Event::SessionQuarantined { reason: reason.to_owned() },
            Event::SessionError(message::Error::new(ERROR, reason)),
            // Clients that know no quarantine must not wait for a turn that does not go on.
            Event::SessionStatus(Status::Idle),
        ];
        let changes: Vec<Change> = event_ids
            .into_iter()
            .zip(events)
            .map(|(id, event)| Change { id, what: What::Event(event) })
            .collect();
        let scope = Scope { tenant, session, epoch, at };
        let first = event_seq + 1 - changes.len() as u64;
        let events = record::project(&mut tx, &scope, &changes, first).await?;
        if let Some((parent, call)) = &call {
            let answer = children::failed(call, session, &format!("The subtask was stopped: {reason}."));
            children::deliver(&mut tx, tenant, parent, &answer).await?;
        }
        tx.commit().await?;
        Ok(Some(Quarantined { events, epoch, class, parent: call.map(|(_, call)| call.session) }))
    }

    /// Lets a quarantined session go on, with all its attempts. Gives the events and its class; `None` when it is not
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
    ) -> Result<Option<(Vec<Stored>, Class)>, Error> {
        let mut tx = self.begin(tenant).await?;
        let row = sqlx::query(
            "update session_run set phase = 1, attempts = 0, queued_at = now(), event_seq = event_seq + 1,
                    waiting_reason = null, waiting_detail = null
              where tenant_id = $1 and session_id = $2 and phase = 4 returning epoch, event_seq, class",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let scope = Scope { tenant, session, epoch: unsigned(row.try_get("epoch")?), at };
        let change = Change { id: event_id, what: What::Event(Event::SessionReleased) };
        let events = record::project(&mut tx, &scope, &[change], unsigned(row.try_get("event_seq")?)).await?;
        let class = Class::from_i16(row.try_get("class")?).unwrap_or_default();
        tx.commit().await?;
        Ok(Some((events, class)))
    }
}

/// Takes the session from whoever has it. Gives its new epoch, its last event's number with room for three events, and its
/// class.
async fn stop(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
    (which, reason): (Which, &str),
) -> Result<Option<(u64, u64, Class)>, Error> {
    let row = sqlx::query(
        "update session_run r set phase = 4, epoch = epoch + 1, write_seq = 0, event_seq = event_seq + 3,
                owner = null, owned_at = null, wake_at = null, waiting_reason = null, waiting_detail = $3,
                waiting_at = now()
          where r.tenant_id = $1 and r.session_id = $2 and r.phase in (1, 2, 3)
            and ($4 or (r.attempts >= $5 and (r.phase = 1 or not coalesce(worker_alive(r.owner), false))))
         returning epoch, event_seq, class",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(reason)
    .bind(which == Which::Any)
    .bind(limits::ATTEMPTS_MAX)
    .fetch_optional(&mut **tx)
    .await?;
    let stopped = |row: sqlx::postgres::PgRow| {
        let class = Class::from_i16(row.try_get("class")?).unwrap_or_default();
        Ok((unsigned(row.try_get("epoch")?), unsigned(row.try_get("event_seq")?), class))
    };
    row.map(stopped).transpose()
}
