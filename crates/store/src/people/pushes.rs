//! Pushes of people, in the logs of the sessions that they pushed.

use crate::{
    Store, Tx,
    audit::AuditNote,
    column::signed,
    error::Error,
    log::{
        change::{Change, Note, Scope},
        projection,
    },
    rows::control_row::{self, ControlRow},
};
use domain::{
    egress::PushReceipt,
    event::{Event, PUSHED, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
    text,
};
use serde_json::Value;
use sqlx::Row as _;

/// The newest events of a log, among which a repeated push looks for the push before it. If that one is older, the repeated push is stored. Each push has an event, so
/// this bounds the pushes that are read too.
const PUSH_EVENTS_READ_MAX: u64 = 1_000;

/// A push that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPush {
    pub receipt: PushReceipt,
    /// The name of the person's key.
    pub by: String,
    /// Tells people in the conversation.
    pub note: Note,
}

impl Store {
    /// Stores a push in the log of its session, whatever the session does, and returns the events; no events if this push brought nothing, and the newest push to the same
    /// branch brought the same commit. In a conversation that is too large for further notes, only the log has the push.
    ///
    /// # Errors
    /// `NotFound`; `Db`: stored or not.
    pub async fn record_push(
        &self,
        tenant: TenantId,
        session: &SessionId,
        push: SessionPush,
        id: &EventId,
        at: Timestamp,
    ) -> Result<Vec<StoredEvent>, Error> {
        let SessionPush { receipt, by, note } = push;
        let mut tx = self.begin(tenant).await?;
        let run = control_row::lock(&mut tx, tenant, session).await?;
        let scope = Scope { tenant, session, epoch: run.epoch, at };
        let object = format!("{session} {} {} {}", receipt.url, receipt.branch, receipt.commit);
        self.note(&mut tx, AuditNote::of(tenant, "session.push", &object)).await?;
        if is_repeated(&mut tx, &scope, &run, &receipt).await? {
            tx.commit().await?;
            return Ok(vec![]);
        }
        let mut events = vec![Event::SessionPushed { receipt: Box::new(receipt), by }];
        let bytes = text::json_bytes(&note.text) as u64;
        if run.has_room(bytes) {
            count_note(&mut tx, &scope, bytes).await?;
            events.extend(note.events(at));
        }
        let stored = projection::append(&mut tx, &scope, &run, &Change::events(id, events)).await?;
        tx.commit().await?;
        Ok(stored)
    }
}

/// Whether a push brought nothing and the log says already what its branch has.
async fn is_repeated(
    tx: &mut Tx,
    scope: &Scope<'_>,
    run: &ControlRow,
    receipt: &PushReceipt,
) -> Result<bool, Error> {
    if receipt.commits > 0 {
        return Ok(false);
    }
    let rows = sqlx::query(
        "select properties from session_event where tenant_id = $1 and session_id = $2 and seq > $3 and kind = $4
          order by seq desc",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(run.event_seq.saturating_sub(PUSH_EVENTS_READ_MAX)))
    .bind(PUSHED)
    .fetch_all(&mut **tx)
    .await?;
    for row in rows {
        let event: Value = serde_json::from_str(row.try_get("properties")?)
            .map_err(|error| Error::unreadable("event", error))?;
        let push = &event["push"];
        if push["url"] == receipt.url && push["branch"] == receipt.branch {
            return Ok(push["commit"] == receipt.commit);
        }
    }
    Ok(false)
}

/// Counts a note like one of a client: no turn follows it, so nothing else bounds the notes of a session.
async fn count_note(tx: &mut Tx, scope: &Scope<'_>, bytes: u64) -> Result<(), Error> {
    sqlx::query(
        "update session_run set prompt_bytes = prompt_bytes + $3 where tenant_id = $1 and session_id = $2",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(bytes))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
