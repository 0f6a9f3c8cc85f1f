//! The mailbox of a session. Storing an input and parking the loop lock the same control row, so only two orders are
//! possible: the loop sees the input before it parks, or the session becomes runnable again after it parked.

use crate::{
    Store, Tx,
    column::{parse_id, signed, unsigned},
    error::Error,
    log::projection::{self, Projection},
    phase::{self, IDLE, RUNNABLE, WAITING},
    pool::Statement,
    rows::control_row::{ControlRow, EXISTS},
};
use domain::{
    ids::{MessageId, SessionId, TenantId, Timestamp},
    limits,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

/// Inputs that a loop reads at once. Aborts, replies and answers of children may be behind a mailbox full of prompts.
pub(crate) const INPUTS_MAX: i64 = limits::INPUTS_PENDING_MAX * 2;

/// The kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message that a turn answers.
    Prompt,
    /// A message that starts no turn.
    Note,
    /// Ends the turn that came before it.
    Abort,
    /// The answer of a child.
    Child,
    /// A request to people was closed.
    Reply,
    /// The budget of the tree changed.
    Budget,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Prompt, Self::Note, Self::Abort, Self::Child, Self::Reply, Self::Budget];

    /// The value in `session_input.kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Note => "note",
            Self::Abort => "abort",
            Self::Child => "child",
            Self::Reply => "reply",
            Self::Budget => "budget",
        }
    }

    /// Reads [`Kind::as_str`]. A loop must not take an input of a newer version, because it does not know how to handle
    /// it.
    fn read(text: &str) -> Result<Self, Error> {
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| Error::unreadable("input", UnknownKind(text.to_owned())))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown kind {0:?}")]
struct UnknownKind(String);

/// An input that no loop has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxInput {
    /// Its position in the mailbox.
    pub seq: u64,
    pub kind: Kind,
    /// Its name. Of several inputs with the same name only the first is stored.
    pub dedupe: String,
    /// The message of a prompt or a note.
    pub message_id: Option<MessageId>,
    /// The answer of a child: see [`crate::session::tree::answers::ChildAnswer`].
    pub body: Option<Value>,
    /// The trace context of its sender.
    pub traceparent: Option<String>,
}

impl Store {
    /// Returns the inputs after `after`, oldest first.
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub async fn list_inputs(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
    ) -> Result<Vec<MailboxInput>, Error> {
        let mut statements = self.statements(tenant).await?;
        let inputs = list(&mut statements, tenant, session, after).await?;
        statements.end();
        Ok(inputs)
    }
}

/// Reads the inputs after `after`; see [`Store::list_inputs`].
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn list(
    connection: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    after: u64,
) -> Result<Vec<MailboxInput>, Error> {
    let rows = sqlx::query(AssertSqlSafe(select_after("$3", "$4")))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(after))
        .bind(INPUTS_MAX)
        .fetch_all(connection)
        .await?;
    rows.iter().map(from_row).collect()
}

/// Selects the inputs after a position, oldest first, and at most `limit`.
pub(crate) fn select_after(after: &str, limit: &str) -> String {
    format!(
        "select seq, kind, dedupe, message_id as id, body as data, traceparent from session_input
          where tenant_id = $1 and session_id = $2 and seq > {after} and {EXISTS} order by seq limit {limit}"
    )
}

/// Reads a row of [`select_after`].
pub(crate) fn from_row(row: &PgRow) -> Result<MailboxInput, Error> {
    let message_id: Option<&str> = row.try_get("id")?;
    Ok(MailboxInput {
        message_id: message_id.map(|id| parse_id("input", id)).transpose()?,
        seq: unsigned(row.try_get("seq")?),
        kind: Kind::read(row.try_get("kind")?)?,
        dedupe: row.try_get("dedupe")?,
        body: row.try_get("data")?,
        traceparent: row.try_get("traceparent")?,
    })
}

pub(crate) struct NewInput<'a> {
    pub(crate) kind: Kind,
    /// Its name. A second input with this name is not stored.
    pub(crate) dedupe: &'a str,
    /// That of a prompt or a note.
    pub(crate) message: Option<InputMessage<'a>>,
    /// The answer of a child.
    pub(crate) body: Option<Value>,
}

impl<'a> NewInput<'a> {
    /// An input without a message and without an answer.
    pub(crate) fn new(kind: Kind, dedupe: &'a str) -> Self {
        Self { kind, dedupe, message: None, body: None }
    }

    /// How much the session grows by it.
    fn growth(&self) -> Growth {
        self.message.as_ref().map_or_else(Growth::default, |message| message.growth)
    }

    /// Whether its sender wants to know the position of the session in the queue.
    fn with_queue_position(&self) -> bool {
        self.message.as_ref().is_some_and(|message| message.with_queue_position)
    }
}

/// The message of a prompt or a note.
pub(crate) struct InputMessage<'a> {
    pub(crate) id: &'a MessageId,
    /// SHA-256 of the client's request.
    pub(crate) body_sha256: &'a [u8; 32],
    pub(crate) traceparent: Option<&'a str>,
    /// Whether its sender wants to know the position of the session in the queue.
    pub(crate) with_queue_position: bool,
    pub(crate) growth: Growth,
}

/// How much a session grows by a prompt or a note.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Growth {
    /// Events that the caller writes.
    pub(crate) events: u64,
    /// Bytes of the prompt or note.
    pub(crate) prompt_bytes: u64,
}

/// A prompt or a note with everything that is stored with it.
pub(crate) struct Delivery<'a> {
    /// The input. It has a message, and no other input has its name.
    pub(crate) input: NewInput<'a>,
    /// The message and its parts: [`Projection::is_plain_message`].
    pub(crate) projection: &'a Projection,
    /// The variant of the session from now on.
    pub(crate) variant: Option<&'a str>,
    pub(crate) at: Timestamp,
}

/// A mailbox, and the control row that the transaction holds. Only [`Mailbox::deliver`] needs no transaction.
pub(crate) struct Mailbox<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) session: &'a SessionId,
    pub(crate) run: &'a ControlRow,
}

impl Mailbox<'_> {
    /// Stores an input in the next position, unless one with its name is stored. Makes the session runnable, unless a loop owns it or an
    /// operator must release it first. A note starts no turn: an idle session acknowledges it at once.
    ///
    /// # Errors
    /// `Db`.
    pub(crate) async fn put(&self, tx: &mut Tx, input: NewInput<'_>) -> Result<(), Error> {
        self.put_in_queue(tx, input).await.map(drop)
    }

    /// Stores an input like [`Mailbox::put`]. Returns the position of the session in the queue of its tenant, from 1, if the sender wants to know it; 0 if the
    /// session does not wait.
    ///
    /// # Errors
    /// `Db`.
    pub(crate) async fn put_in_queue(&self, tx: &mut Tx, input: NewInput<'_>) -> Result<u32, Error> {
        let growth = input.growth();
        let change = effect(input.kind);
        let sql = format!(
            "with stored as (
               insert into session_input (tenant_id, session_id, seq, kind, dedupe, body_sha256, message_id, traceparent, body)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
               on conflict (tenant_id, session_id, dedupe) do nothing returning 1)
             update session_run r set input_seq = $3, event_seq = event_seq + $10, prompt_bytes = prompt_bytes + $11, {change}
              where tenant_id = $1 and session_id = $2 and exists (select 1 from stored)
             returning case when $12 then {} else 0 end as queue_position",
            phase::queue_position()
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(self.tenant.0)
            .bind(self.session.as_str())
            .bind(signed(self.run.input_seq + 1));
        let row = bind_input(query, &input)
            .bind(&input.body)
            .bind(signed(growth.events))
            .bind(signed(growth.prompt_bytes))
            .bind(input.with_queue_position())
            .fetch_optional(&mut **tx)
            .await?;
        row.as_ref().map_or(Ok(0), read_position)
    }

    /// Stores a prompt or a note, its message and its events with one statement, if nothing has changed the control row since it was read. Returns the
    /// position of the session in the queue of its tenant, or 0; `None`: the row has changed, and nothing is stored.
    ///
    /// The statement waits for the lock of the row like a transaction, and then compares the newest version. Every input, every event and every change of the
    /// columns that a prompt depends on comes with a change of this row. So if the version is the one that was read, whatever was read with it still holds.
    ///
    /// # Errors
    /// `Db`: stored or not.
    pub(crate) async fn deliver(
        &self,
        connection: &mut PgConnection,
        delivery: Delivery<'_>,
    ) -> Result<Option<u32>, Error> {
        let Delivery { input, projection, variant, at } = delivery;
        let growth = input.growth();
        let change = effect(input.kind);
        let sql = format!(
            "with behind as (
               update session_run r set input_seq = input_seq + 1, event_seq = event_seq + $5, prompt_bytes = prompt_bytes + $6, {change}
                where tenant_id = $1 and session_id = $2 and xmin::text = $4
               returning event_seq - $5 as base, input_seq, case when $12 then {} else 0 end as queue_position),
             touched as (
               update session s set updated_at = date_trunc('milliseconds', now()), variant = $13
                 from behind where s.tenant_id = $1 and s.id = $2),
             stored as (
               insert into session_input (tenant_id, session_id, seq, kind, dedupe, body_sha256, message_id, traceparent)
               select $1, $2, behind.input_seq, $7, $8, $9, $10, $11 from behind){}
             select queue_position from behind",
            phase::queue_position(),
            projection::message_inserts()
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(self.tenant.0)
            .bind(self.session.as_str())
            .bind(signed(self.run.epoch))
            .bind(&self.run.version)
            .bind(signed(growth.events))
            .bind(signed(growth.prompt_bytes));
        let query = bind_input(query, &input).bind(input.with_queue_position()).bind(variant).bind(at.0);
        let row = projection.bind(query).fetch_optional(&mut *connection).await?;
        row.as_ref().map(read_position).transpose()
    }
}

/// How an input changes the control row, besides its numbers. It makes the session runnable, unless a loop owns it or an operator must release it first.
fn effect(kind: Kind) -> String {
    match kind {
        Kind::Note => format!("input_ack = case when phase = {IDLE} then input_seq + 1 else input_ack end"),
        Kind::Abort => format!("cancel_seq = input_seq + 1, {}", wake()),
        Kind::Prompt | Kind::Child | Kind::Reply | Kind::Budget => wake(),
    }
}

fn wake() -> String {
    let waits = format!("phase in ({IDLE}, {WAITING})");
    format!(
        "phase = case when {waits} then {RUNNABLE} else phase end,
         queued_at = case when {waits} then now() else queued_at end,
         wake_at = case when {waits} then null else wake_at end,
         waiting_reason = case when {waits} then null else waiting_reason end"
    )
}

/// Binds the kind, the name, the hash, the message and the trace context of an input.
fn bind_input<'q>(statement: Statement<'q>, input: &NewInput<'q>) -> Statement<'q> {
    let message = input.message.as_ref();
    statement
        .bind(input.kind.as_str())
        .bind(input.dedupe)
        .bind(message.map_or(&[][..], |message| message.body_sha256))
        .bind(message.map(|message| message.id.as_str()))
        .bind(message.and_then(|message| message.traceparent))
}

/// Reads the position of a session in the queue of its tenant.
fn read_position(row: &PgRow) -> Result<u32, Error> {
    Ok(u32::try_from(row.try_get::<i64, _>("queue_position")?).unwrap_or(u32::MAX))
}
