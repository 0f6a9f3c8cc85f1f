//! The mailbox of a session. Accepting an input and parking the loop lock the same control row, so there are only two
//! orders: the loop sees the input before it parks, or the session is runnable again after it parked.
// Continues in worker::claim, which the hints of gateway::intake reach.

use crate::{
    Store,
    error::{Entity, Error},
    log::record,
    session::{reverts, sessions},
    signed, unsigned,
};
use domain::{
    event::{Event, Stored},
    ids::{EventId, MessageId, SessionId, TenantId, Timestamp},
    limits,
    message::{Message, User},
    part::Part,
    session::Class,
};
use sqlx::{Postgres, Row as _, Transaction};

/// A prompt on its way in.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The message.
    pub user: User,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Names the prompt: a repeated one with the same body is the same prompt.
    pub dedupe: String,
    /// SHA-256 of what the caller sent.
    pub body_sha256: [u8; 32],
    /// The caller's trace.
    pub traceparent: Option<String>,
    /// Ids for the events: one for the message and one for each part.
    pub event_ids: Vec<EventId>,
    /// Whether it is to be answered.
    pub reply: Reply,
    /// Whether it is refused while the session works or waits: it would cut a turn.
    pub only_when_idle: bool,
}

/// Whether a message is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reply {
    /// By a turn.
    #[default]
    Wanted,
    /// It is only stored: the next turn sees it.
    None,
}

/// What became of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The stored message; of a repeated prompt, the first one's.
    pub message_id: MessageId,
    /// Its events, for publishing; empty for a repeated prompt.
    pub events: Vec<Stored>,
    /// Inputs that no loop has taken, without this one.
    pub inputs_ahead: u32,
    /// Whether the session must be enqueued: it was not running.
    pub runnable: bool,
}

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message that wants an answer.
    Prompt,
    /// A message that wakes nobody.
    Note,
    /// Whatever came before it ends.
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

    /// As it is stored.
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

    /// An input of a newer version must not be taken by a loop that does not know what it asks for.
    fn read(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| Error::unreadable("input", UnknownKind(text.to_owned())))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no kind {0:?} in this version")]
struct UnknownKind(String);

/// An input that a loop has not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its place in the mailbox.
    pub seq: u64,
    /// What it is.
    pub kind: Kind,
    /// Its name: of several with the same one the first counts.
    pub dedupe: String,
    /// The message of a prompt or a note.
    pub message_id: Option<MessageId>,
    /// The answer of a child: see [`crate::session::children::Answer`].
    pub body: Option<serde_json::Value>,
    /// The trace of who sent it.
    pub traceparent: Option<String>,
}

/// The control row while this transaction holds it.
pub(crate) struct Locked {
    phase: i16,
    pub(crate) class: Class,
    pub(crate) epoch: u64,
    pub(crate) event_seq: u64,
    input_seq: u64,
    input_ack: u64,
    cancel_seq: u64,
    is_held: bool,
    revert_state: i16,
    is_archived: bool,
}

impl Locked {
    /// Refuses what would begin while files are taken back, or before that is ended.
    ///
    /// # Errors
    /// `Busy`, `RevertUnfinished`.
    pub(crate) fn refuse_held(&self) -> Result<(), Error> {
        match self.revert_state {
            _ if self.is_held => Err(Error::Busy),
            reverts::UNFINISHED => Err(Error::RevertUnfinished),
            _ => Ok(()),
        }
    }

    /// Whether messages wait to be removed with the next prompt.
    pub(crate) fn has_taken_back(&self) -> bool {
        self.revert_state == reverts::DONE
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == 0
    }

    /// Whether a worker must be found for what is accepted now.
    pub(crate) fn needs_worker(&self) -> bool {
        // A running loop finds it; a quarantined session waits for its operator.
        self.phase != 2 && self.phase != 4
    }

    /// Whether the newest input is an abort that no loop has taken.
    pub(crate) fn ends_with_abort(&self) -> bool {
        self.cancel_seq > self.input_ack && self.cancel_seq == self.input_seq
    }

    /// Refuses what nobody would take before an operator releases the session.
    ///
    /// # Errors
    /// `Quarantined`.
    pub(crate) fn refuse_quarantined(&self) -> Result<(), Error> {
        if self.phase == 4 { Err(Error::Quarantined) } else { Ok(()) }
    }
}

/// Takes the control row for this transaction.
pub(crate) async fn lock(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Locked, Error> {
    let row = sqlx::query(
        "select phase, class, epoch, event_seq, input_seq, input_ack, cancel_seq, revert_state,
                coalesce(held_until > clock_timestamp(), false) as held,
                (select s.archived_at is not null from session s where s.tenant_id = $1 and s.id = $2) as archived
           from session_run where tenant_id = $1 and session_id = $2 for update",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .fetch_optional(&mut **tx)
    .await?
    .ok_or(Error::NotFound(Entity::Session))?;
    Ok(Locked {
        phase: row.try_get("phase")?,
        class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
        epoch: unsigned(row.try_get("epoch")?),
        event_seq: unsigned(row.try_get("event_seq")?),
        input_seq: unsigned(row.try_get("input_seq")?),
        input_ack: unsigned(row.try_get("input_ack")?),
        cancel_seq: unsigned(row.try_get("cancel_seq")?),
        is_held: row.try_get("held")?,
        revert_state: row.try_get("revert_state")?,
        is_archived: row.try_get::<Option<bool>, _>("archived")?.unwrap_or_default(),
    })
}

impl Store {
    /// Accepts a prompt: message, parts, mailbox row and `runnable`, in one transaction. An archived session comes back.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` for a used key with another body, or a used id of a message; `Quarantined`; `TooManyInputs`;
    /// `Busy` and `RevertUnfinished` while files are taken back; `Busy` for what is accepted only by an idle session;
    /// `Db` (stored or not: repeat with the same key).
    pub async fn accept_prompt(
        &self,
        tenant: TenantId,
        prompt: &Prompt,
        at: Timestamp,
    ) -> Result<Accepted, Error> {
        let session = &prompt.user.session_id;
        let mut tx = self.begin(tenant).await?;
        let run = lock(&mut tx, tenant, session).await?;
        let before = sqlx::query(
            "select body_sha256, message_id, seq from session_input where tenant_id = $1 and session_id = $2 and dedupe = $3",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(&prompt.dedupe)
        .fetch_optional(&mut *tx)
        .await?;
        if let Some(row) = before {
            return repeated(&row, prompt, &run);
        }
        run.refuse_quarantined()?;
        run.refuse_held()?;
        if prompt.only_when_idle && !run.is_idle() {
            return Err(Error::Busy);
        }
        let waiting = signed(run.input_seq - run.input_ack);
        if waiting >= limits::INPUTS_PENDING_MAX {
            return Err(Error::TooManyInputs(waiting));
        }
        if is_known(&mut tx, tenant, &prompt.user).await? {
            return Err(Error::Conflict);
        }
        let events = accept(&mut tx, tenant, prompt, &run, at).await?;
        tx.commit().await?;
        Ok(Accepted {
            message_id: prompt.user.id.clone(),
            events,
            inputs_ahead: u32::try_from(waiting).unwrap_or(u32::MAX),
            runnable: prompt.reply == Reply::Wanted && run.needs_worker(),
        })
    }

    /// Gives the inputs after `after`, oldest first.
    ///
    /// # Errors
    /// `Db`.
    pub async fn list_inputs(
        &self,
        tenant: TenantId,
        session: &SessionId,
        after: u64,
    ) -> Result<Vec<Pending>, Error> {
        let mut tx = self.begin(tenant).await?;
        let rows = sqlx::query(
            "select seq, kind, dedupe, message_id, body, traceparent from session_input
              where tenant_id = $1 and session_id = $2 and seq > $3 order by seq limit $4",
        )
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(signed(after))
        // Aborts, replies and answers of children may stand behind a mailbox full of prompts.
        .bind(limits::INPUTS_PENDING_MAX * 2)
        .fetch_all(&mut *tx)
        .await?;
        rows.iter()
            .map(|row| {
                let message_id: Option<String> = row.try_get("message_id")?;
                let message_id = message_id.map(|id| id.parse()).transpose();
                Ok(Pending {
                    message_id: message_id.map_err(|error| Error::unreadable("input", error))?,
                    seq: unsigned(row.try_get("seq")?),
                    kind: Kind::read(row.try_get("kind")?)?,
                    dedupe: row.try_get("dedupe")?,
                    body: row.try_get("body")?,
                    traceparent: row.try_get("traceparent")?,
                })
            })
            .collect()
    }
}

/// Whether the session has a message of this id: a caller may name one, and must not replace what is there.
async fn is_known(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    user: &User,
) -> Result<bool, Error> {
    let row = sqlx::query("select 1 from message where tenant_id = $1 and session_id = $2 and id = $3")
        .bind(tenant.0)
        .bind(user.session_id.as_str())
        .bind(user.id.as_str())
        .fetch_optional(&mut **tx)
        .await?;
    Ok(row.is_some())
}

fn repeated(row: &sqlx::postgres::PgRow, prompt: &Prompt, run: &Locked) -> Result<Accepted, Error> {
    let (sha256, message_id): (Vec<u8>, Option<String>) =
        (row.try_get("body_sha256")?, row.try_get("message_id")?);
    let message_id = message_id.filter(|_| sha256 == prompt.body_sha256).ok_or(Error::Conflict)?;
    let seq = unsigned(row.try_get("seq")?);
    Ok(Accepted {
        message_id: message_id.parse().map_err(|error| Error::unreadable("input", error))?,
        events: vec![],
        inputs_ahead: u32::try_from(seq.saturating_sub(run.input_ack + 1)).unwrap_or(u32::MAX),
        runnable: false,
    })
}

fn changes(prompt: &Prompt, at: Timestamp) -> Vec<record::Change> {
    let message = Event::MessageUpdated(Box::new(Message::User(prompt.user.clone())));
    let parts = prompt.parts.iter().map(|part| Event::PartUpdated { part: Box::new(part.clone()), at });
    let events = std::iter::once(message).chain(parts);
    prompt
        .event_ids
        .iter()
        .zip(events)
        .map(|(id, event)| record::Change { id: id.clone(), what: record::What::Event(event) })
        .collect()
}

/// Stores a prompt that is known to be new; the caller holds the control row. Gives its events.
pub(crate) async fn accept(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    prompt: &Prompt,
    run: &Locked,
    at: Timestamp,
) -> Result<Vec<Stored>, Error> {
    let session = &prompt.user.session_id;
    let (mut changes, mut before) = (changes(prompt, at), vec![]);
    if run.has_taken_back() {
        before = reverts::forget(tx, tenant, session).await?;
    }
    if run.is_archived {
        before.push(unarchive(tx, tenant, session).await?);
    }
    // The ids that came with the prompt are for its own events.
    let ids = prompt.event_ids.first().into_iter().cycle().enumerate();
    let before = ids.zip(before).map(|((number, id), event)| record::Change {
        id: id.numbered(number),
        what: record::What::Event(event),
    });
    changes.splice(0..0, before);
    let kind = match prompt.reply {
        Reply::Wanted => Kind::Prompt,
        Reply::None => Kind::Note,
    };
    let seq = advance(tx, tenant, (session, run), (kind, changes.len() as u64)).await?;
    sqlx::query(
        "insert into session_input (tenant_id, session_id, seq, kind, dedupe, body_sha256, message_id, traceparent)
         values ($1, $2, $3, $8, $4, $5, $6, $7)",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(seq))
    .bind(&prompt.dedupe)
    .bind(&prompt.body_sha256[..])
    .bind(prompt.user.id.as_str())
    .bind(&prompt.traceparent)
    .bind(kind.as_str())
    .execute(&mut **tx)
    .await?;
    let scope = record::Scope { tenant, session, epoch: run.epoch, at };
    record::project(tx, &scope, &changes, run.event_seq + 1).await
}

/// Shows a session in lists again: somebody goes on with it. Gives the event for it.
async fn unarchive(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    session: &SessionId,
) -> Result<Event, Error> {
    sqlx::query(
        "update session set archived_at = null, updated_at = date_trunc('milliseconds', now())
          where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .execute(&mut **tx)
    .await?;
    Ok(Event::SessionUpdated(Box::new(sessions::read(tx, tenant, session).await?.info)))
}

/// Puts an input that is no prompt into the mailbox, once for each dedupe key; the caller holds the control row.
pub(crate) async fn put(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    (session, run): (&SessionId, &Locked),
    (kind, dedupe, body): (Kind, &str, Option<serde_json::Value>),
) -> Result<(), Error> {
    let known =
        sqlx::query("select 1 from session_input where tenant_id = $1 and session_id = $2 and dedupe = $3")
            .bind(tenant.0)
            .bind(session.as_str())
            .bind(dedupe)
            .fetch_optional(&mut **tx)
            .await?;
    if known.is_some() {
        return Ok(());
    }
    let seq = advance(tx, tenant, (session, run), (kind, 0)).await?;
    sqlx::query(
        "insert into session_input (tenant_id, session_id, seq, kind, dedupe, body_sha256, body)
         values ($1, $2, $3, $4, $5, '', $6)",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(seq))
    .bind(kind.as_str())
    .bind(dedupe)
    .bind(body)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Gives the input its place and makes the session runnable unless a loop has it (or an operator must release it).
async fn advance(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    (session, run): (&SessionId, &Locked),
    (kind, events): (Kind, u64),
) -> Result<u64, Error> {
    let seq = run.input_seq + 1;
    if kind == Kind::Note {
        // An idle session has taken it at once.
        return advance_past(tx, tenant, (session, seq), events).await;
    }
    sqlx::query(
        "update session_run set input_seq = $3, event_seq = event_seq + $4,
                cancel_seq = case when $5 then $3 else cancel_seq end,
                phase = case when phase in (0, 3) then 1 else phase end,
                queued_at = case when phase in (0, 3) then now() else queued_at end,
                wake_at = case when phase in (0, 3) then null else wake_at end,
                waiting_reason = case when phase in (0, 3) then null else waiting_reason end
          where tenant_id = $1 and session_id = $2",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(seq))
    .bind(signed(events))
    .bind(kind == Kind::Abort)
    .execute(&mut **tx)
    .await?;
    Ok(seq)
}

async fn advance_past(
    tx: &mut Transaction<'static, Postgres>,
    tenant: TenantId,
    (session, seq): (&SessionId, u64),
    events: u64,
) -> Result<u64, Error> {
    sqlx::query(
        "update session_run set input_seq = $3, event_seq = event_seq + $4,
                input_ack = case when phase = 0 then $3 else input_ack end
          where tenant_id = $1 and session_id = $2",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(signed(seq))
    .bind(signed(events))
    .execute(&mut **tx)
    .await?;
    Ok(seq)
}
