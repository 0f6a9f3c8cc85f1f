//! Writes changes into the tables and their events into the log. It checks no fence: the caller holds the control
//! row.

mod messages;
mod requests;
mod rows;
mod sessions;
mod tool_execs;

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Change, ChangeBody, Scope},
    session::{control_row::ControlRow, tree::ledger},
};
use domain::event::{Event, StoredEvent};
use rows::Rows;
use std::borrow::Cow;

/// Writes the changes into their tables and all events into the log, numbered from `first`. Returns the events, for
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

/// Writes changes behind the newest event of a session, also while a loop writes it. The transaction holds the control row.
pub(crate) async fn append(
    tx: &mut Tx,
    scope: &Scope<'_>,
    run: &ControlRow,
    changes: &[Change],
) -> Result<Vec<StoredEvent>, Error> {
    sqlx::query("update session_run set event_seq = event_seq + $3 where tenant_id = $1 and session_id = $2")
        .bind(scope.tenant.0)
        .bind(scope.session.as_str())
        .bind(signed(changes.len() as u64))
        .execute(&mut **tx)
        .await?;
    project(tx, scope, changes, run.event_seq + 1).await
}

/// A projection whose changes come one after the other, because together they are large.
pub(crate) struct Projection {
    first: u64,
    stored: Vec<StoredEvent>,
    rows: Rows,
}

impl Projection {
    /// The first event gets the number `first`.
    pub(crate) fn from(first: u64) -> Self {
        Self { first, stored: vec![], rows: Rows::default() }
    }

    /// Takes a change. It is in its table after [`Projection::finish`] at the latest.
    pub(crate) async fn add(&mut self, tx: &mut Tx, scope: &Scope<'_>, change: &Change) -> Result<(), Error> {
        let seq = self.first + self.stored.len() as u64;
        let event = self.project(tx, scope, &change.body, seq).await?;
        self.stored.push(StoredEvent {
            seq,
            epoch: scope.epoch,
            id: change.id.to_string(),
            kind: event.kind().to_owned(),
            properties: event.properties_text(scope.session),
            at: scope.at,
        });
        if self.rows.are_many() {
            self.rows.write(tx, scope, &[]).await?;
        }
        Ok(())
    }

    /// Writes what is left, and the events of all changes into the log. Returns the events.
    pub(crate) async fn finish(mut self, tx: &mut Tx, scope: &Scope<'_>) -> Result<Vec<StoredEvent>, Error> {
        self.rows.write(tx, scope, &self.stored).await?;
        Ok(self.stored)
    }

    /// Writes one change into its table, or gathers its row, and returns the event for the log.
    async fn project<'c>(
        &mut self,
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
                self.project_event(tx, scope, event, seq).await?;
                return Ok(Cow::Borrowed(event));
            }
            ChangeBody::Answer { message, entry } => {
                self.rows.add_message(message, seq)?;
                ledger::insert(tx, scope.tenant, scope.session, entry.as_slice()).await?;
                return Ok(Cow::Owned(Event::MessageUpdated(message.clone())));
            }
            ChangeBody::Spend(entries) => sessions::charge(tx, scope, entries).await?,
            ChangeBody::Title(title) => sessions::set_title(tx, scope, title).await?,
            ChangeBody::FileSummary(summary) => sessions::set_file_summary(tx, scope, summary).await?,
        };
        Ok(Cow::Owned(Event::SessionUpdated(Box::new(info))))
    }

    async fn project_event(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        event: &Event,
        seq: u64,
    ) -> Result<(), Error> {
        match event {
            Event::MessageUpdated(message) => self.rows.add_message(message, seq),
            Event::MessageRemoved(message_id) => {
                self.rows.write(tx, scope, &[]).await?;
                messages::delete_message(tx, scope, message_id).await
            }
            Event::PartUpdated { part, .. } => {
                if self.rows.must_precede(part) {
                    self.rows.write(tx, scope, &[]).await?;
                }
                self.rows.add_part(part, seq)?;
                tool_execs::end(tx, scope, part).await
            }
            Event::PartRemoved { message_id, part_id } => {
                self.rows.write(tx, scope, &[]).await?;
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
            | Event::SessionPushed { .. }
            | Event::WorktreeReady(_)
            | Event::WorktreeFailed(_)
            | Event::SessionWaiting(_)
            | Event::SessionQuarantined { .. }
            | Event::SessionReleased
            | Event::SessionDiff(_)
            | Event::FileEdited(_)
            | Event::FilesChanged(_)
            | Event::CommandExecuted { .. } => Ok(()),
        }
    }
}
