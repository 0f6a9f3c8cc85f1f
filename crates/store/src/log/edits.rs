//! What people change in a conversation themselves. The session must be idle: a loop goes on with what it has read.

use crate::{
    Store,
    error::{Entity, Error},
    log::record::{self, Change, Scope, What},
    session::{inputs, reverts},
    signed,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, MessageId, PartId, SessionId, TenantId, Timestamp},
    part::{Body, Part},
};
use sqlx::{Postgres, Row as _, Transaction, types::Json};

/// A change to a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// A message goes, with its parts.
    RemoveMessage(MessageId),
    /// A part goes.
    RemovePart(MessageId, PartId),
    /// The text of a part that is one becomes another.
    Text(MessageId, PartId, String),
    /// What was taken back goes now, and not with the next prompt.
    CommitRevert,
}

impl Store {
    /// Makes a change and gives its events: none where nothing was taken back.
    ///
    /// # Errors
    /// `NotFound` for the session, the message or the part, also when the part is no text; `Busy`: the session works, waits or
    /// is held; `Quarantined`; `RevertUnfinished`; `Db`: made or not.
    pub async fn edit(
        &self,
        tenant: TenantId,
        session: &SessionId,
        edit: &Edit,
        id: &EventId,
        at: Timestamp,
    ) -> Result<Vec<Stored>, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = inputs::lock(&mut tx, tenant, session).await?;
        run.refuse_quarantined()?;
        run.refuse_held()?;
        if !run.is_idle() {
            return Err(Error::Busy);
        }
        let events = match edit {
            Edit::CommitRevert if !run.has_taken_back() => vec![],
            Edit::CommitRevert => reverts::forget(&mut tx, tenant, session).await?,
            Edit::RemoveMessage(message) => {
                find_message(&mut tx, (tenant, session), message).await?;
                vec![Event::MessageRemoved(message.clone())]
            }
            Edit::RemovePart(message, part) => {
                find_part(&mut tx, (tenant, session), (message, part)).await?;
                vec![Event::PartRemoved { message_id: message.clone(), part_id: part.clone() }]
            }
            Edit::Text(message, part, text) => {
                let mut part = find_part(&mut tx, (tenant, session), (message, part)).await?;
                let Body::Text(known) = &mut part.body else { return Err(Error::NotFound(Entity::Part)) };
                known.text.clone_from(text);
                vec![Event::PartUpdated { part: Box::new(part), at }]
            }
        };
        sqlx::query(
            "update session_run set event_seq = event_seq + $3 where tenant_id = $1 and session_id = $2",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(events.len() as u64))
        .execute(&mut *tx)
        .await?;
        let numbered = events.into_iter().enumerate();
        let changes: Vec<Change> = numbered
            .map(|(number, event)| Change { id: id.numbered(number), what: What::Event(event) })
            .collect();
        let scope = Scope { tenant, session, epoch: run.epoch, at };
        let stored = record::project(&mut tx, &scope, &changes, run.event_seq + 1).await?;
        tx.commit().await?;
        Ok(stored)
    }
}

async fn find_message(
    tx: &mut Transaction<'static, Postgres>,
    (tenant, session): (TenantId, &SessionId),
    message: &MessageId,
) -> Result<(), Error> {
    let row = sqlx::query("select 1 from message where tenant_id = $1 and session_id = $2 and id = $3")
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(message.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    row.map(|_| ()).ok_or(Error::NotFound(Entity::Message))
}

async fn find_part(
    tx: &mut Transaction<'static, Postgres>,
    (tenant, session): (TenantId, &SessionId),
    (message, part): (&MessageId, &PartId),
) -> Result<Part, Error> {
    let row = sqlx::query(
        "select data from part where tenant_id = $1 and session_id = $2 and message_id = $3 and id = $4",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(message.as_str())
    .bind(part.as_str())
    .fetch_optional(&mut **tx)
    .await?
    .ok_or(Error::NotFound(Entity::Part))?;
    let data = row.try_get::<Json<Part>, _>("data").map_err(|error| Error::unreadable("part", error))?;
    Ok(data.0)
}
