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
    log::change::{Change, ChangeBody, Scope, Title},
    session::{control_row::ControlRow, tree::ledger::Entry},
};
use domain::{
    conversation::{
        part::Part,
        request::{Answer, Id, Request},
    },
    event::{Event, StoredEvent},
    ids::{MessageId, PartId},
    session::{Changes, Info},
};
pub(crate) use rows::{Rows, Statement, fenced, message_inserts};
use serde_json::Value;
pub(crate) use sessions::{bind_charge, fenced_charge};
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
    /// The session with its new sums, if it is charged already.
    charged: Option<Box<Info>>,
}

/// What a projection has taken of a change.
enum TakeOutcome<'c> {
    /// All of it: its rows are added, and this is its event.
    Whole(Cow<'c, Event>),
    /// Nothing: the event needs this statement.
    Event(&'c Event, EventStatement<'c>),
    /// Nothing: the change needs this statement, which decides what its event says.
    Change(ChangeStatement<'c>),
}

/// What an event needs that rows cannot give.
enum EventStatement<'c> {
    RemoveMessage(&'c MessageId),
    RemovePart(&'c MessageId, &'c PartId),
    /// A call is over, or the same write has begun it.
    UpdateCall(&'c Part),
    SetTodos(&'c Value),
    SetBranch(Option<&'c str>),
    Ask(&'c Request),
    ForgetWorkspace,
    ForgetPromptBytes,
}

/// What a change needs before its event is known.
enum ChangeStatement<'c> {
    CloseRequest(&'c Id, &'c Answer),
    Charge(&'c [Entry]),
    SetTitle(&'c Title),
    SetFileSummary(&'c Changes),
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
            let TakeOutcome::Whole(event) = self.take(&change.body)? else { return Ok(left) };
            self.log(scope, change, &event);
        }
        Ok(&[])
    }

    /// Takes the session as [`fenced_charge`] charged it, for the event of the only charge.
    pub(crate) fn with_charged(self, session: Option<Box<Info>>) -> Self {
        Self { charged: session, ..self }
    }

    /// The number of the events.
    pub(crate) fn len(&self) -> u64 {
        self.stored.len() as u64
    }

    /// Whether [`message_inserts`] writes all that was gathered.
    pub(crate) fn is_plain_message(&self) -> bool {
        self.rows.are_plain_messages()
    }

    /// What was gathered, for [`fenced`].
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Binds the parameters of [`fenced`] that follow the first eight, or those of [`message_inserts`] that follow the time.
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
        let event = match self.take(&change.body)? {
            TakeOutcome::Whole(event) => event,
            TakeOutcome::Event(event, statement) => {
                self.run_event_statement(tx, scope, statement).await?;
                Cow::Borrowed(event)
            }
            TakeOutcome::Change(statement) => {
                Cow::Owned(self.run_change_statement(tx, scope, statement).await?)
            }
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

    /// Adds the rows of a change, unless it needs a statement of its own.
    fn take<'c>(&mut self, body: &'c ChangeBody) -> Result<TakeOutcome<'c>, Error> {
        match body {
            ChangeBody::Event(event) => self.take_event(event),
            ChangeBody::Answer { message, entry } => {
                self.rows.add_message(message, self.next())?;
                if let Some(entry) = entry {
                    self.rows.add_entry(entry);
                }
                Ok(TakeOutcome::Whole(Cow::Owned(Event::MessageUpdated(message.clone()))))
            }
            // The event shows the session with the new sums, which only the update of its row knows.
            ChangeBody::Spend(entries) => Ok(match self.charged.take() {
                Some(session) => TakeOutcome::Whole(Cow::Owned(Event::SessionUpdated(session))),
                None => TakeOutcome::Change(ChangeStatement::Charge(entries)),
            }),
            ChangeBody::Title(title) => Ok(TakeOutcome::Change(ChangeStatement::SetTitle(title))),
            ChangeBody::FileSummary(summary) => {
                Ok(TakeOutcome::Change(ChangeStatement::SetFileSummary(summary)))
            }
        }
    }

    fn take_event<'c>(&mut self, event: &'c Event) -> Result<TakeOutcome<'c>, Error> {
        let statement = match event {
            Event::MessageUpdated(message) => {
                self.rows.add_message(message, self.next())?;
                return Ok(TakeOutcome::Whole(Cow::Borrowed(event)));
            }
            Event::PartUpdated { part, .. } if tool_execs::is_over(part) || self.rows.must_precede(part) => {
                EventStatement::UpdateCall(part)
            }
            Event::PartUpdated { part, .. } => {
                self.rows.add_part(part, self.next())?;
                return Ok(TakeOutcome::Whole(Cow::Borrowed(event)));
            }
            Event::MessageRemoved(message_id) => EventStatement::RemoveMessage(message_id),
            Event::PartRemoved { message_id, part_id } => EventStatement::RemovePart(message_id, part_id),
            Event::TodoUpdated(todos) => EventStatement::SetTodos(todos),
            Event::BranchUpdated(branch) => EventStatement::SetBranch(branch.as_deref()),
            Event::RequestAsked(request) => EventStatement::Ask(request),
            Event::RequestAnswered { id, answer } => {
                return Ok(TakeOutcome::Change(ChangeStatement::CloseRequest(id, answer)));
            }
            Event::WorkspaceRestarted => EventStatement::ForgetWorkspace,
            Event::SessionCompacted => EventStatement::ForgetPromptBytes,
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
            | Event::CommandExecuted { .. } => return Ok(TakeOutcome::Whole(Cow::Borrowed(event))),
        };
        Ok(TakeOutcome::Event(event, statement))
    }

    /// Runs the statement of a change, and returns its event.
    async fn run_change_statement(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        statement: ChangeStatement<'_>,
    ) -> Result<Event, Error> {
        let info = match statement {
            // A person may have answered before the loop closed the request. The log shows the answer that counts.
            ChangeStatement::CloseRequest(id, answer) => {
                let answer = requests::close(tx, scope, id, answer).await?;
                return Ok(Event::RequestAnswered { id: id.clone(), answer });
            }
            ChangeStatement::Charge(entries) => sessions::charge(tx, scope, entries).await?,
            ChangeStatement::SetTitle(title) => sessions::set_title(tx, scope, title).await?,
            ChangeStatement::SetFileSummary(summary) => {
                sessions::set_file_summary(tx, scope, summary).await?
            }
        };
        Ok(Event::SessionUpdated(Box::new(info)))
    }

    async fn run_event_statement(
        &mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        statement: EventStatement<'_>,
    ) -> Result<(), Error> {
        match statement {
            EventStatement::RemoveMessage(message_id) => {
                self.rows.write(tx, scope, self.base, &[]).await?;
                messages::delete_message(tx, scope, message_id).await
            }
            EventStatement::RemovePart(message_id, part_id) => {
                self.rows.write(tx, scope, self.base, &[]).await?;
                messages::delete_part(tx, scope, message_id, part_id).await
            }
            EventStatement::UpdateCall(part) => {
                if self.rows.must_precede(part) {
                    self.rows.write(tx, scope, self.base, &[]).await?;
                }
                self.rows.add_part(part, self.next())?;
                tool_execs::end(tx, scope, part).await
            }
            EventStatement::SetTodos(todos) => sessions::set_todos(tx, scope, todos).await,
            EventStatement::SetBranch(branch) => sessions::set_branch(tx, scope, branch).await,
            EventStatement::Ask(request) => requests::insert(tx, scope, request).await,
            EventStatement::ForgetWorkspace => sessions::forget_workspace(tx, scope).await,
            EventStatement::ForgetPromptBytes => sessions::forget_prompt_bytes(tx, scope).await,
        }
    }
}
