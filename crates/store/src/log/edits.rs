//! Changes that people make to a conversation. The session must be idle: a running loop works with what it has already
//! read.

use super::removal;
use crate::{
    Store, Tx,
    error::{Entity, Error},
    log::{
        change::{Change, Note, Scope},
        projection,
    },
    rows::control_row::{self, RevertState},
};
use domain::{
    conversation::part::{Body, Part},
    event::{Event, StoredEvent},
    ids::{EventId, MessageId, PartId, SessionId, TenantId, Timestamp},
};
use sqlx::{Row as _, types::Json};

/// A change to a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Removes a message with its parts.
    RemoveMessage(MessageId),
    RemovePart(MessageId, PartId),
    /// Replaces the text of a text part.
    Text(MessageId, PartId, String),
    /// Stores the branch of files that were just opened.
    Branch(String),
    /// Removes the reverted messages now instead of with the next prompt.
    CommitRevert,
    /// Forgets the lost workspace of a session that has one of its own, so that the next turn opens its source again, and adds a note for the model.
    RestartWorkspace(Note),
}

impl Store {
    /// Makes a change and returns its events; no events if there is no revert to commit.
    ///
    /// # Errors
    /// `NotFound` for the session, the message or the part, or if the part is not text; `Busy`: the session works or waits, or
    /// a revert holds it; `Quarantined`; `RevertUnfinished`; `Db`: made or not.
    pub async fn edit(
        &self,
        tenant: TenantId,
        session: &SessionId,
        edit: &Edit,
        id: &EventId,
        at: Timestamp,
    ) -> Result<Vec<StoredEvent>, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = control_row::lock(&mut tx, tenant, session).await?;
        run.refuse_quarantined()?;
        run.refuse_held()?;
        if !run.is_idle() {
            return Err(Error::Busy);
        }
        let events = match edit {
            Edit::CommitRevert => match run.revert_state {
                RevertState::Done => removal::remove_reverted(&mut tx, tenant, session).await?,
                RevertState::None | RevertState::Unfinished => vec![],
            },
            Edit::RemoveMessage(message) => {
                check_message(&mut tx, tenant, session, message).await?;
                vec![Event::MessageRemoved(message.clone())]
            }
            Edit::RemovePart(message, part) => {
                get_part(&mut tx, tenant, session, message, part).await?;
                vec![Event::PartRemoved { message_id: message.clone(), part_id: part.clone() }]
            }
            Edit::Branch(branch) => vec![Event::BranchUpdated(Some(branch.clone()))],
            Edit::RestartWorkspace(note) => {
                std::iter::once(Event::WorkspaceRestarted).chain(note.events(at)).collect()
            }
            Edit::Text(message, part, text) => {
                let mut part = get_part(&mut tx, tenant, session, message, part).await?;
                let Body::Text(body) = &mut part.body else { return Err(Error::NotFound(Entity::Part)) };
                body.text.clone_from(text);
                vec![Event::PartUpdated { part: Box::new(part), at }]
            }
        };
        let scope = Scope { tenant, session, epoch: run.epoch, at };
        let stored = projection::append(&mut tx, &scope, &run, &Change::events(id, events)).await?;
        tx.commit().await?;
        Ok(stored)
    }
}

async fn check_message(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
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

async fn get_part(
    tx: &mut Tx,
    tenant: TenantId,
    session: &SessionId,
    message: &MessageId,
    part: &PartId,
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
