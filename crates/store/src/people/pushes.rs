//! Pushes of people, in the logs of the sessions that they pushed.

use crate::{
    Store,
    error::Error,
    log::{
        change::{Change, Note, Scope},
        projection,
    },
    session::control_row,
};
use domain::{
    egress::PushReceipt,
    event::{Event, StoredEvent},
    ids::{EventId, SessionId, TenantId, Timestamp},
};

/// A push that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPush {
    /// What it brought.
    pub receipt: PushReceipt,
    /// The name of the person's key.
    pub by: String,
    /// Tells people in the conversation.
    pub note: Note,
}

impl Store {
    /// Stores a push in the log of its session, whatever the session does, and returns the events.
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
        let pushed = Event::SessionPushed { receipt: Box::new(receipt), by };
        let events = std::iter::once(pushed).chain(note.events(at)).collect();
        let scope = Scope { tenant, session, epoch: run.epoch, at };
        let stored = projection::append(&mut tx, &scope, &run, &Change::events(id, events)).await?;
        tx.commit().await?;
        Ok(stored)
    }
}
