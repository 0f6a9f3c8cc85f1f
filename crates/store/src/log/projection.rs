//! Writes changes into the tables and their events into the log. It checks no fence: the caller holds the control
//! row.

mod messages;
mod requests;
mod sessions;
mod tool_execs;

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Change, ChangeBody, Scope},
    session::tree::ledger,
};
use domain::event::{Event, StoredEvent};
use std::borrow::Cow;

/// Writes each change into its table and all events at once, numbered from `first`. Returns the events, for
/// publishing.
pub(crate) async fn project(
    tx: &mut Tx,
    scope: &Scope<'_>,
    changes: &[Change],
    first: u64,
) -> Result<Vec<StoredEvent>, Error> {
    let mut projection = Projection::from(first);
    for change in changes {
        projection.add(tx, scope, change).await?;
    }
    projection.finish(tx, scope).await
}

/// A projection whose changes come one after the other, because together they are large.
pub(crate) struct Projection {
    first: u64,
    stored: Vec<StoredEvent>,
}

impl Projection {
    /// The first event gets the number `first`.
    pub(crate) fn from(first: u64) -> Self {
        Self { first, stored: vec![] }
    }

    /// Writes a change into its table.
    pub(crate) async fn add(&mut self, tx: &mut Tx, scope: &Scope<'_>, change: &Change) -> Result<(), Error> {
        let seq = self.first + self.stored.len() as u64;
        let event = project_one(tx, scope, &change.body, seq).await?;
        self.stored.push(StoredEvent {
            seq,
            epoch: scope.epoch,
            id: change.id.to_string(),
            kind: event.kind().to_owned(),
            properties: event.properties_text(scope.session),
            at: scope.at,
        });
        Ok(())
    }

    /// Writes the events of all changes into the log, and returns them.
    pub(crate) async fn finish(self, tx: &mut Tx, scope: &Scope<'_>) -> Result<Vec<StoredEvent>, Error> {
        insert_events(tx, scope, &self.stored).await?;
        Ok(self.stored)
    }
}

/// Writes one change into its table and returns the event for the log.
async fn project_one<'c>(
    tx: &mut Tx,
    scope: &Scope<'_>,
    body: &'c ChangeBody,
    seq: u64,
) -> Result<Cow<'c, Event>, Error> {
    let info = match body {
        // A person may have answered before the loop closed the request. The log shows the answer that counts.
        ChangeBody::Event(Event::RequestAnswered { id, answer }) => {
            let answer = requests::close(tx, scope, id, answer).await?;
            return Ok(Cow::Owned(Event::RequestAnswered { id: id.clone(), answer }));
        }
        ChangeBody::Event(event) => {
            project_event(tx, scope, event, seq).await?;
            return Ok(Cow::Borrowed(event));
        }
        ChangeBody::Answer { message, entry } => {
            messages::upsert_message(tx, scope, message, seq).await?;
            ledger::insert(tx, scope.tenant, scope.session, entry.as_slice()).await?;
            return Ok(Cow::Owned(Event::MessageUpdated(message.clone())));
        }
        ChangeBody::Spend(entries) => sessions::charge(tx, scope, entries).await?,
        ChangeBody::Title(title) => sessions::set_title(tx, scope, title).await?,
        ChangeBody::FileSummary(summary) => sessions::set_file_summary(tx, scope, summary).await?,
    };
    Ok(Cow::Owned(Event::SessionUpdated(Box::new(info))))
}

async fn project_event(tx: &mut Tx, scope: &Scope<'_>, event: &Event, seq: u64) -> Result<(), Error> {
    match event {
        Event::MessageUpdated(message) => messages::upsert_message(tx, scope, message, seq).await,
        Event::MessageRemoved(message_id) => messages::delete_message(tx, scope, message_id).await,
        Event::PartUpdated { part, .. } => {
            messages::upsert_part(tx, scope, part, seq).await?;
            tool_execs::update(tx, scope, part).await
        }
        Event::PartRemoved { message_id, part_id } => {
            messages::delete_part(tx, scope, message_id, part_id).await
        }
        Event::TodoUpdated(todos) => sessions::set_todos(tx, scope, todos).await,
        Event::BranchUpdated(branch) => sessions::set_branch(tx, scope, branch.as_deref()).await,
        Event::RequestAsked(request) => requests::insert(tx, scope, request).await,
        Event::WorkspaceRestarted => sessions::forget_workspace(tx, scope).await,
        Event::SessionCompacted => sessions::forget_prompt_bytes(tx, scope).await,
        // Either the log alone records this fact, or the caller changes the row itself.
        Event::RequestAnswered { .. }
        | Event::SessionCreated(_)
        | Event::SessionUpdated(_)
        | Event::SessionDeleted(_)
        | Event::SessionStatus(_)
        | Event::SessionIdle(_)
        | Event::SessionError(_)
        | Event::LoopStarted { .. }
        | Event::LoopHandedOver { .. }
        | Event::SnapshotMissed(_)
        | Event::SessionWaiting(_)
        | Event::SessionQuarantined { .. }
        | Event::SessionReleased
        | Event::SessionDiff(_)
        | Event::FileEdited(_)
        | Event::FilesChanged(_)
        | Event::CommandExecuted { .. } => Ok(()),
    }
}

async fn insert_events(tx: &mut Tx, scope: &Scope<'_>, events: &[StoredEvent]) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = events.iter().map(|event| signed(event.seq)).collect();
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let properties: Vec<&str> = events.iter().map(|event| event.properties.as_str()).collect();
    sqlx::query(
        "insert into session_event (tenant_id, session_id, epoch, at, seq, id, kind, properties)
         select $1, $2, $3, to_timestamp($4::float8 / 1000), e.seq, e.id, e.kind, e.properties
           from unnest($5::bigint[], $6::text[], $7::text[], $8::text[]) as e (seq, id, kind, properties)",
    )
    .bind(scope.tenant.0)
    .bind(scope.session.as_str())
    .bind(signed(scope.epoch))
    .bind(scope.at.0)
    .bind(&seqs)
    .bind(&ids)
    .bind(&kinds)
    .bind(&properties)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
