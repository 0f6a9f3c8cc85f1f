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
pub(crate) use rows::{Rows, Statement, fenced};
use std::borrow::Cow;

/// Writes the changes into their tables and all events into the log, numbered from `first`. Returns the events, for
/// publishing.
pub(crate) async fn project(
    tx: &mut Tx,
    scope: &Scope<'_>,
    changes: &[Change],
    first: u64,
) -> Result<Vec<StoredEvent>, Error> {
    Projection::default().project(tx, scope, changes, first).await
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
#[derive(Default)]
pub(crate) struct Projection {
    /// The number of the event before the first one.
    base: u64,
    /// Numbered from 1 until the projection ends.
    stored: Vec<StoredEvent>,
    rows: Rows,
}

impl Projection {
    /// The first event gets the number `first`.
    pub(crate) fn from(first: u64) -> Self {
        Self { base: first - 1, ..Self::default() }
    }

    /// Takes changes that need nothing but rows. Stops at the first other one, and when the rows are many, and returns the changes that are left.
    pub(crate) fn gather<'c>(
        &mut self,
        scope: &Scope<'_>,
        changes: &'c [Change],
    ) -> Result<&'c [Change], Error> {
        for (taken, change) in changes.iter().enumerate() {
            let left = &changes[taken..];
            if self.rows.are_many() {
                return Ok(left);
            }
            let Some(event) = self.add_rows(&change.body)? else { return Ok(left) };
            self.log(scope, change, &event);
        }
        Ok(&[])
    }

    /// The number of the events.
    pub(crate) fn len(&self) -> u64 {
        self.stored.len() as u64
    }

    /// What was gathered, for [`fenced`].
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Binds the parameters of [`fenced`] that follow the first eight.
    pub(crate) fn bind<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        self.rows.bind(statement, &self.stored)
    }

    /// Takes further changes and writes everything. The first event of the projection gets the number `first`. Returns the events.
    pub(crate) async fn project(
        mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        changes: &[Change],
        first: u64,
    ) -> Result<Vec<StoredEvent>, Error> {
        self.base = first - 1;
        for change in changes {
            self.add(tx, scope, change).await?;
        }
        self.finish(tx, scope).await
    }

    /// Takes a change. It is in its table after [`Projection::finish`] at the latest.
    pub(crate) async fn add(&mut self, tx: &mut Tx, scope: &Scope<'_>, change: &Change) -> Result<(), Error> {
        let event = match self.add_rows(&change.body)? {
            Some(event) => event,
            None => self.run(tx, scope, &change.body).await?,
        };
        self.log(scope, change, &event);
        if self.rows.are_many() {
            self.rows.write(tx, scope, self.base, &[]).await?;
        }
        Ok(())
    }

    /// Writes what is left, and the events of all changes into the log. Returns the events.
    pub(crate) async fn finish(mut self, tx: &mut Tx, scope: &Scope<'_>) -> Result<Vec<StoredEvent>, Error> {
        self.rows.write(tx, scope, self.base, &self.stored).await?;
        Ok(self.into_events())
    }

    /// The events of a projection that was written with its statement. The first one has the number `first`.
    pub(crate) fn written_from(mut self, first: u64) -> Vec<StoredEvent> {
        self.base = first - 1;
        self.into_events()
    }

    fn into_events(mut self) -> Vec<StoredEvent> {
        for event in &mut self.stored {
            event.seq += self.base;
        }
        self.stored
    }

    /// Adds the event of a change to the log.
    fn log(&mut self, scope: &Scope<'_>, change: &Change, event: &Event) {
        self.stored.push(StoredEvent {
            seq: self.next(),
            epoch: scope.epoch,
            id: change.id.to_string(),
            kind: event.kind().to_owned(),
            properties: event.properties_text(scope.session),
            at: scope.at,
        });
    }

    /// The number of the next event.
    fn next(&self) -> u64 {
        self.len() + 1
    }

    /// Adds the rows of a change, and returns its event. `None`: the change needs more than rows, and none is added.
    fn add_rows<'c>(&mut self, body: &'c ChangeBody) -> Result<Option<Cow<'c, Event>>, Error> {
        let seq = self.next();
        let event = match body {
            ChangeBody::Event(event) => event,
            ChangeBody::Answer { message, entry: None } => {
                self.rows.add_message(message, seq)?;
                return Ok(Some(Cow::Owned(Event::MessageUpdated(message.clone()))));
            }
            ChangeBody::Answer { .. }
            | ChangeBody::Spend(_)
            | ChangeBody::Title(_)
            | ChangeBody::FileSummary(_) => return Ok(None),
        };
        match event {
            Event::MessageUpdated(message) => self.rows.add_message(message, seq)?,
            Event::PartUpdated { part, .. } => {
                if tool_execs::is_over(part) || self.rows.must_precede(part) {
                    return Ok(None);
                }
                self.rows.add_part(part, seq)?;
            }
            Event::MessageRemoved(_)
            | Event::PartRemoved { .. }
            | Event::TodoUpdated(_)
            | Event::BranchUpdated(_)
            | Event::RequestAsked(_)
            | Event::RequestAnswered { .. }
            | Event::WorkspaceRestarted
            | Event::SessionCompacted => return Ok(None),
            // Either the log alone records this fact, or the caller changes the row itself.
            Event::SessionCreated(_)
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
            | Event::CommandExecuted { .. } => {}
        }
        Ok(Some(Cow::Borrowed(event)))
    }

    /// Runs the statements of a change that needs more than rows, and returns its event.
    async fn run<'c>(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        body: &'c ChangeBody,
    ) -> Result<Cow<'c, Event>, Error> {
        let info = match body {
            // A person may have answered before the loop closed the request. The log shows the answer that counts.
            ChangeBody::Event(Event::RequestAnswered { id, answer }) => {
                let answer = requests::close(tx, scope, id, answer).await?;
                return Ok(Cow::Owned(Event::RequestAnswered { id: id.clone(), answer }));
            }
            ChangeBody::Event(event) => {
                self.run_event(tx, scope, event).await?;
                return Ok(Cow::Borrowed(event));
            }
            ChangeBody::Answer { message, entry } => {
                self.rows.add_message(message, self.next())?;
                ledger::insert(tx, scope.tenant, scope.session, entry.as_slice()).await?;
                return Ok(Cow::Owned(Event::MessageUpdated(message.clone())));
            }
            ChangeBody::Spend(entries) => sessions::charge(tx, scope, entries).await?,
            ChangeBody::Title(title) => sessions::set_title(tx, scope, title).await?,
            ChangeBody::FileSummary(summary) => sessions::set_file_summary(tx, scope, summary).await?,
        };
        Ok(Cow::Owned(Event::SessionUpdated(Box::new(info))))
    }

    async fn run_event(&mut self, tx: &mut Tx, scope: &Scope<'_>, event: &Event) -> Result<(), Error> {
        match event {
            Event::MessageRemoved(message_id) => {
                self.rows.write(tx, scope, self.base, &[]).await?;
                messages::delete_message(tx, scope, message_id).await
            }
            Event::PartUpdated { part, .. } => {
                if self.rows.must_precede(part) {
                    self.rows.write(tx, scope, self.base, &[]).await?;
                }
                self.rows.add_part(part, self.next())?;
                tool_execs::end(tx, scope, part).await
            }
            Event::PartRemoved { message_id, part_id } => {
                self.rows.write(tx, scope, self.base, &[]).await?;
                messages::delete_part(tx, scope, message_id, part_id).await
            }
            Event::TodoUpdated(todos) => sessions::set_todos(tx, scope, todos).await,
            Event::BranchUpdated(branch) => sessions::set_branch(tx, scope, branch.as_deref()).await,
            Event::RequestAsked(request) => requests::insert(tx, scope, request).await,
            Event::WorkspaceRestarted => sessions::forget_workspace(tx, scope).await,
            Event::SessionCompacted => sessions::forget_prompt_bytes(tx, scope).await,
            // `add_rows` has taken it.
            Event::MessageUpdated(_)
            | Event::RequestAnswered { .. }
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
