//! Writes changes into the tables and their events into the log. It checks no fence: the caller holds the control
//! row.

mod charges;
mod columns;
mod messages;
mod requests;
mod rows;
mod sessions;
mod tool_execs;

use crate::{
    Tx,
    column::signed,
    error::Error,
    log::change::{Change, ChangeBody, Charge, Scope, Title},
    pool::Statement,
    rows::control_row::ControlRow,
};
pub(crate) use charges::{ADD_SPENT, KnownCharge, SPENT, bind_sums};
use domain::{
    conversation::{
        part::Part,
        request::{Answer, Id, Request},
    },
    event::{Event, StoredEvent},
    ids::{MessageId, PartId},
    session::{Changes, Info},
};
pub(crate) use rows::{Rows, fenced, message_inserts, parked};
use std::borrow::Cow;

/// Writes the changes into their tables and all events into the log, numbered from `first`. Returns the events, for
/// publishing.
pub(crate) async fn project(
    tx: &mut Tx,
    scope: &Scope<'_>,
    changes: &[Change],
    first: u64,
) -> Result<Vec<StoredEvent>, Error> {
    Ok(Projection::default().project(tx, scope, changes, first).await?.events)
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
    /// The session as it is in the newest event that contains all of it.
    session: Option<Box<Info>>,
}

pub(crate) struct ProjectionResult {
    pub(crate) events: Vec<StoredEvent>,
    /// The session, if an event contains all of it.
    pub(crate) session: Option<Box<Info>>,
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
    /// The same write has begun this call.
    UpdateCall(&'c Part),
    Ask(&'c Request),
    ForgetWorkspace,
    ForgetPromptBytes,
}

/// What a change needs before its event is known.
enum ChangeStatement<'c> {
    CloseRequest(&'c Id, &'c Answer),
    Charge(&'c Charge),
    SetTitle(&'c Title),
    SetFileSummary(&'c Changes),
}

impl Projection {
    /// The first event gets the number `first`.
    pub(crate) fn from(first: u64) -> Self {
        Self { base: first - 1, ..Self::default() }
    }

    /// Takes changes that need nothing but rows. Stops at the first other one, and when the rows are many. Returns whether it took all.
    pub(crate) fn gather(&mut self, scope: &Scope<'_>, changes: &[Change]) -> Result<bool, Error> {
        for change in changes {
            if self.rows.are_many() {
                return Ok(false);
            }
            if let ChangeBody::Spend(charge) = &change.body
                && let Some(event) = self.charge_known(charge, scope)
            {
                self.log(scope, change, &event);
                continue;
            }
            let TakeOutcome::Whole(event) = self.take(&change.body)? else { return Ok(false) };
            self.log(scope, change, &event);
        }
        Ok(true)
    }

    /// Charges a session that the caller knows, and returns the event that shows its new sums. `None`: the caller does not know it, or has charged it before.
    fn charge_known(&mut self, charge: &Charge, scope: &Scope<'_>) -> Option<Event> {
        let known = charge.known.as_ref().filter(|_| self.session.is_none())?;
        let (mut info, sums) = (known.info.clone(), charge.sums());
        info.tokens = info.tokens.plus(sums.tokens);
        info.cost = info.cost.plus(sums.cost);
        // The clocks of others may be ahead of this one.
        info.time.updated = info.time.updated.max(scope.at);
        let known = KnownCharge { sums, event_seq: known.event_seq, updated_at: info.time.updated };
        self.rows.add_charge(known, &charge.entries);
        Some(Event::SessionUpdated(info))
    }

    /// The number of the events.
    pub(crate) fn len(&self) -> u64 {
        self.stored.len() as u64
    }

    /// Whether [`message_inserts`] writes all that was gathered.
    pub(crate) fn is_plain_message(&self) -> bool {
        self.rows.are_plain_messages()
    }

    /// What was gathered, for [`fenced`] and [`parked`].
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Binds the rows and events to a statement whose own parameters are bound.
    pub(crate) fn bind<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        self.rows.bind(statement, &self.stored)
    }

    /// Takes changes and writes everything. The first event of the projection gets the number `first`.
    pub(crate) async fn project(
        mut self,
        tx: &mut Tx,
        scope: &Scope<'_>,
        changes: &[Change],
        first: u64,
    ) -> Result<ProjectionResult, Error> {
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

    /// Writes what is left, and the events of all changes into the log.
    pub(crate) async fn finish(mut self, tx: &mut Tx, scope: &Scope<'_>) -> Result<ProjectionResult, Error> {
        self.rows.write(tx, scope, self.base, &self.stored).await?;
        Ok(self.into_result())
    }

    /// What was written with a statement that takes its rows. The first event has the number `first`.
    pub(crate) fn written_from(mut self, first: u64) -> ProjectionResult {
        self.base = first - 1;
        self.into_result()
    }

    fn into_result(mut self) -> ProjectionResult {
        for event in &mut self.stored {
            event.seq += self.base;
        }
        ProjectionResult { events: self.stored, session: self.session }
    }

    /// Adds the event of a change to the log.
    fn log(&mut self, scope: &Scope<'_>, change: &Change, event: &Event) {
        if let Event::SessionUpdated(session) = event {
            self.session = Some(session.clone());
        }
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
            ChangeBody::Spend(charge) => Ok(TakeOutcome::Change(ChangeStatement::Charge(charge))),
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
            Event::PartUpdated { part, .. } if self.rows.must_precede(part) => {
                EventStatement::UpdateCall(part)
            }
            Event::PartUpdated { part, .. } => {
                self.rows.add_part(part, self.next())?;
                return Ok(TakeOutcome::Whole(Cow::Borrowed(event)));
            }
            Event::MessageRemoved(message_id) => EventStatement::RemoveMessage(message_id),
            Event::PartRemoved { message_id, part_id } => EventStatement::RemovePart(message_id, part_id),
            Event::TodoUpdated(todos) => {
                self.rows.set_todos(todos)?;
                return Ok(TakeOutcome::Whole(Cow::Borrowed(event)));
            }
            Event::BranchUpdated(branch) => {
                self.rows.set_branch(branch.clone());
                return Ok(TakeOutcome::Whole(Cow::Borrowed(event)));
            }
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
            ChangeStatement::Charge(charge) => sessions::charge(tx, scope, charge).await?,
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
                self.rows.write(tx, scope, self.base, &[]).await?;
                self.rows.add_part(part, self.next())
            }
            EventStatement::Ask(request) => requests::insert(tx, scope, request).await,
            EventStatement::ForgetWorkspace => sessions::forget_workspace(tx, scope).await,
            EventStatement::ForgetPromptBytes => sessions::forget_prompt_bytes(tx, scope).await,
        }
    }
}
