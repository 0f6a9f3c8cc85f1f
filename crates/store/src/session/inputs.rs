//! Accepts prompts: message, parts, mailbox row and `runnable` in one transaction, which mostly is one statement.
// Continues in worker::claim, which the hints of gateway::app::prompts::accept reach.

use crate::{
    Store, Tx,
    column::{parse_id, signed, unsigned},
    error::{Entity, Error},
    log::{
        change::{Change, Scope},
        projection::Projection,
        removal,
    },
    rows::control_row::{self, CONTROL_COLUMNS, ControlRow},
    session::mailbox::{Delivery, Growth, InputMessage, Kind, Mailbox, NewInput},
};
use domain::{
    conversation::{
        message::{Format, Message, MessageTime, ModelChoice, ModelRef, User},
        part::Part,
    },
    event::{Event, StoredEvent},
    ids::{EventId, MessageId, SessionId, TenantId, Timestamp},
    limits,
    session::Class,
    text,
};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};
use std::{collections::BTreeMap, slice};

#[derive(Debug, Clone)]
pub struct Prompt {
    pub id: MessageId,
    pub session_id: SessionId,
    /// The agent that answers; `None`: that of the session.
    pub agent: Option<String>,
    /// The model that answers; `None`: that of the session.
    pub model: Option<ModelRef>,
    /// The variant (reasoning effort) of the model.
    pub variant: VariantChoice,
    /// An additional system instruction for this prompt only.
    pub system: Option<String>,
    /// Tools that are switched off (or on again) for this prompt, by name or pattern.
    pub tools: Option<BTreeMap<String, bool>>,
    /// The required format of the answer.
    pub format: Option<Format>,
    pub parts: Vec<Part>,
    /// The name of the prompt: a repeated name with the same body is the same prompt.
    pub dedupe: String,
    /// SHA-256 of the client's request.
    pub body_sha256: [u8; 32],
    /// The client's trace context.
    pub traceparent: Option<String>,
    /// Ids for the events: one for the message and one for each part.
    pub event_ids: Vec<EventId>,
    /// Whether a turn answers it.
    pub reply: Reply,
    /// Whether only an idle session accepts it, because it would otherwise split a turn.
    pub only_when_idle: bool,
    /// Whether its receipt has the position of the session in the queue.
    pub with_queue_position: bool,
}

/// The variant (reasoning effort) that a prompt chooses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VariantChoice {
    /// The variant of the session: the last one that a prompt chose.
    #[default]
    Session,
    /// The provider's default. Later prompts that choose none get it too.
    Provider,
    /// One of [`domain::conversation::message::VARIANTS`]. Later prompts that choose none get it too.
    Named(String),
}

impl VariantChoice {
    /// The name that the prompt chooses, if it chooses one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Session | Self::Provider => None,
            Self::Named(name) => Some(name),
        }
    }
}

/// Whether a turn answers a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reply {
    /// A turn answers it.
    #[default]
    Expected,
    /// The message is only stored; the next turn sees it.
    None,
}

/// The result of accepting a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptReceipt {
    /// The stored message; for a repeated prompt, the message of the first one.
    pub message_id: MessageId,
    /// Its events, for publishing; empty for a repeated prompt.
    pub events: Vec<StoredEvent>,
    /// Earlier inputs that no loop has taken yet.
    pub inputs_ahead: u32,
    /// Whether the gateway must enqueue the session, because no loop owns it.
    pub runnable: bool,
    pub class: Class,
    /// Position of the session in the queue of its tenant, from 1, if the prompt asks for it; 0 if the session does not wait, and for a repeated
    /// prompt.
    pub queue_position: u32,
}

impl Store {
    /// Returns the receipt of a prompt if it was accepted earlier, and changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `Conflict`: the key was used with a different body; `Db`.
    pub async fn find_prompt(
        &self,
        tenant: TenantId,
        prompt: &Prompt,
    ) -> Result<Option<PromptReceipt>, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = control_row::lock(&mut tx, tenant, &prompt.session_id).await?;
        let row = sqlx::query(
            "select body_sha256, message_id, seq from session_input where tenant_id = $1 and session_id = $2 and dedupe = $3",
        )
        .bind(tenant.0)
        .bind(prompt.session_id.as_str())
        .bind(&prompt.dedupe)
        .fetch_optional(&mut *tx)
        .await?;
        row.map(|row| EarlierInput::from_row(&row)?.receipt(prompt, &run)).transpose()
    }

    /// Accepts a prompt. The session moves to the beginning of the lists, also if it was archived.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` for a used key with a different body, or a used message id; `Quarantined`; `TooManyInputs`; `PromptsTooLarge`;
    /// `Busy` and `RevertUnfinished` while a revert changes the files; `Busy` if only an idle session accepts the prompt;
    /// `Db` (stored or not: repeat with the same key).
    pub async fn accept_prompt(
        &self,
        tenant: TenantId,
        prompt: &Prompt,
        at: Timestamp,
    ) -> Result<PromptReceipt, Error> {
        let mut statements = self.statements(tenant).await?;
        let attempt = Attempt::read(&mut statements, tenant, prompt).await;
        match attempt {
            Ok(attempt) => {
                let receipt = attempt.accept(&mut statements, at).await?;
                statements.end();
                if let Some(receipt) = receipt {
                    return Ok(receipt);
                }
            }
            // Postgres may have closed the connection. Nothing is stored, and a transaction finds another one.
            Err(error) if error.is_transient() => drop(statements),
            Err(error) => return Err(error),
        }
        // On the heap: it is rare, and every prompt would have it in its future.
        Box::pin(self.accept_in_transaction(tenant, prompt, at)).await
    }

    /// Accepts a prompt while it holds the control row: other writes come before it or after it.
    async fn accept_in_transaction(
        &self,
        tenant: TenantId,
        prompt: &Prompt,
        at: Timestamp,
    ) -> Result<PromptReceipt, Error> {
        let mut tx = self.begin(tenant).await?;
        let run = control_row::lock(&mut tx, tenant, &prompt.session_id).await?;
        let recipient = touch(&mut tx, tenant, prompt).await?;
        let bytes = bytes(prompt);
        if let Some(repeated) = recipient.admit(prompt, bytes, &run)? {
            return Ok(repeated);
        }
        let entry = PromptEntry { prompt, answerer: recipient.answerer(prompt), bytes };
        let stored = insert(&mut tx, tenant, entry, &run, at).await?;
        tx.commit().await?;
        Ok(stored.receipt(prompt, &run))
    }
}

/// A prompt, and its session as one statement read it. Nothing holds the session.
struct Attempt<'a> {
    tenant: TenantId,
    prompt: &'a Prompt,
    run: ControlRow,
    recipient: Recipient,
}

impl<'a> Attempt<'a> {
    async fn read(
        connection: &mut PgConnection,
        tenant: TenantId,
        prompt: &'a Prompt,
    ) -> Result<Self, Error> {
        let sql = format!(
            "select {CONTROL_COLUMNS}, {RECIPIENT_COLUMNS}
               from session_run r join session s on s.tenant_id = r.tenant_id and s.id = r.session_id
               left join session_input i on i.tenant_id = $1 and i.session_id = $2 and i.dedupe = $4
              where r.tenant_id = $1 and r.session_id = $2"
        );
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.0)
            .bind(prompt.session_id.as_str())
            .bind(prompt.id.as_str())
            .bind(&prompt.dedupe)
            .fetch_optional(connection)
            .await?
            .ok_or(Error::NotFound(Entity::Session))?;
        Ok(Self { tenant, prompt, run: ControlRow::from_row(&row)?, recipient: Recipient::from_row(&row)? })
    }

    /// Accepts the prompt with one statement, if nothing has changed the session since it was read. `None`: nothing is stored, because the session has
    /// changed, something must be written before the prompt, or the prompt is large.
    async fn accept(
        self,
        connection: &mut PgConnection,
        at: Timestamp,
    ) -> Result<Option<PromptReceipt>, Error> {
        let Self { tenant, prompt, run, recipient } = self;
        let bytes = bytes(prompt);
        if let Some(repeated) = recipient.admit(prompt, bytes, &run)? {
            return Ok(Some(repeated));
        }
        if removal::must_precede_prompt(&run) {
            return Ok(None);
        }
        let session = &prompt.session_id;
        let scope = Scope { tenant, session, epoch: run.epoch, at };
        let answerer = recipient.answerer(prompt);
        let variant = answerer.model.variant.clone();
        let mut projection = Projection::default();
        for change in changes(prompt, answerer, at) {
            if !projection.gather(&scope, slice::from_ref(&change))? {
                return Ok(None);
            }
        }
        if !projection.is_plain_message() {
            return Ok(None);
        }
        let delivery = Delivery {
            input: new_input(prompt, Growth { events: projection.len(), prompt_bytes: bytes }),
            projection: &projection,
            variant: variant.as_deref(),
            at,
        };
        let mailbox = Mailbox { tenant, session, run: &run };
        let Some(queue_position) = mailbox.deliver(connection, delivery).await? else { return Ok(None) };
        let events = projection.written_from(run.event_seq + 1).events;
        Ok(Some(StoredPrompt { events, queue_position }.receipt(prompt, &run)))
    }
}

/// A stored input that has the name of a prompt.
struct EarlierInput {
    body_sha256: Vec<u8>,
    message_id: Option<String>,
    seq: u64,
}

impl EarlierInput {
    /// Reads the columns `body_sha256`, `message_id` and `seq`.
    fn from_row(row: &PgRow) -> Result<Self, Error> {
        let seq = unsigned(row.try_get("seq")?);
        Ok(Self { body_sha256: row.try_get("body_sha256")?, message_id: row.try_get("message_id")?, seq })
    }

    /// The receipt of a prompt that is stored already.
    fn receipt(&self, prompt: &Prompt, run: &ControlRow) -> Result<PromptReceipt, Error> {
        let is_same = self.body_sha256 == prompt.body_sha256;
        let message_id = self.message_id.as_deref().filter(|_| is_same).ok_or(Error::Conflict)?;
        Ok(PromptReceipt {
            message_id: parse_id("input", message_id)?,
            events: vec![],
            inputs_ahead: u32::try_from(self.seq.saturating_sub(run.input_ack + 1)).unwrap_or(u32::MAX),
            runnable: false,
            class: run.class,
            queue_position: 0,
        })
    }
}

/// Refuses a prompt with which the conversation would be too large to load. A small prompt is accepted nevertheless: its turn may begin
/// with a summary, and the number of waiting prompts is bounded. No turn follows a note, so nothing else bounds the notes.
fn refuse_too_large(reply: Reply, bytes: u64, run: &ControlRow) -> Result<(), Error> {
    let is_small = reply == Reply::Expected && bytes <= limits::SESSION_PROMPT_BEYOND_BYTES;
    if run.has_room(bytes) || is_small {
        return Ok(());
    }
    let limit_bytes = limits::SESSION_PROMPTS_BYTES_MAX;
    Err(Error::PromptsTooLarge { stored_bytes: run.prompt_bytes, limit_bytes })
}

/// Bytes of a prompt's parts as JSON.
pub(crate) fn bytes(prompt: &Prompt) -> u64 {
    prompt.parts.iter().map(|part| text::json_bytes(part) as u64).sum()
}

/// The session that receives a prompt: what decides about it.
struct Recipient {
    /// The input with the prompt's name.
    earlier: Option<EarlierInput>,
    /// Whether it has a message with the prompt's id. A client may choose the id, but must not replace a stored message.
    has_message: bool,
    agent: String,
    model: ModelRef,
    variant: Option<String>,
}

/// The columns of [`Recipient::from_row`], of the session `s` with the id `$2` and of the input `i` with the name of the prompt. `$3` is the id of its message.
const RECIPIENT_COLUMNS: &str =
    "s.agent, s.provider_id, s.model_id, s.variant, i.body_sha256, i.message_id, i.seq,
    exists (select 1 from message where tenant_id = $1 and session_id = $2 and id = $3) as has_message";

impl Recipient {
    /// Reads the columns of [`RECIPIENT_COLUMNS`].
    fn from_row(row: &PgRow) -> Result<Self, Error> {
        let is_repeated = row.try_get::<Option<i64>, _>("seq")?.is_some();
        Ok(Self {
            earlier: is_repeated.then(|| EarlierInput::from_row(row)).transpose()?,
            has_message: row.try_get("has_message")?,
            agent: row.try_get("agent")?,
            model: ModelRef { provider_id: row.try_get("provider_id")?, model_id: row.try_get("model_id")? },
            variant: row.try_get("variant")?,
        })
    }

    /// Decides whether the session takes the prompt, whose parts have so many bytes. Returns the receipt of a repeated prompt; `None`: the prompt is to be
    /// stored.
    fn admit(&self, prompt: &Prompt, bytes: u64, run: &ControlRow) -> Result<Option<PromptReceipt>, Error> {
        if let Some(earlier) = &self.earlier {
            return earlier.receipt(prompt, run).map(Some);
        }
        run.refuse_quarantined()?;
        run.refuse_held()?;
        if prompt.only_when_idle && !run.is_idle() {
            return Err(Error::Busy);
        }
        let waiting = signed(run.inputs_waiting());
        if waiting >= limits::INPUTS_PENDING_MAX {
            return Err(Error::TooManyInputs(waiting));
        }
        refuse_too_large(prompt.reply, bytes, run)?;
        if self.has_message { Err(Error::Conflict) } else { Ok(None) }
    }

    /// What answers the prompt: what it names, and otherwise what the session has.
    fn answerer(self, prompt: &Prompt) -> Answerer {
        let variant = match &prompt.variant {
            VariantChoice::Session => self.variant,
            VariantChoice::Provider => None,
            VariantChoice::Named(name) => Some(name.clone()),
        };
        Answerer {
            agent: prompt.agent.clone().unwrap_or(self.agent),
            model: ModelChoice { model: prompt.model.clone().unwrap_or(self.model), variant },
        }
    }
}

/// Records that the session changed, and the variant that a prompt chooses. The caller holds the control row, so no other prompt comes between;
/// if it does not accept the prompt, it must not commit.
async fn touch(tx: &mut Tx, tenant: TenantId, prompt: &Prompt) -> Result<Recipient, Error> {
    let sql = format!(
        "update session s
            set updated_at = date_trunc('milliseconds', now()), variant = case when $5 then $6 else s.variant end
           from (select 1) one left join session_input i on i.tenant_id = $1 and i.session_id = $2 and i.dedupe = $4
          where s.tenant_id = $1 and s.id = $2
         returning {RECIPIENT_COLUMNS}"
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(prompt.session_id.as_str())
        .bind(prompt.id.as_str())
        .bind(&prompt.dedupe)
        .bind(prompt.variant != VariantChoice::Session)
        .bind(prompt.variant.name())
        .fetch_one(&mut **tx)
        .await?;
    Recipient::from_row(&row)
}

pub(crate) struct PromptEntry<'a> {
    pub(crate) prompt: &'a Prompt,
    pub(crate) answerer: Answerer,
    /// See [`bytes`].
    pub(crate) bytes: u64,
}

/// The agent and the model that answer a prompt.
pub(crate) struct Answerer {
    pub(crate) agent: String,
    pub(crate) model: ModelChoice,
}

/// What the storing of a prompt resulted in.
pub(crate) struct StoredPrompt {
    pub(crate) events: Vec<StoredEvent>,
    /// See [`PromptReceipt::queue_position`].
    queue_position: u32,
}

impl StoredPrompt {
    /// The receipt of a prompt that was stored behind the inputs of the row.
    fn receipt(self, prompt: &Prompt, run: &ControlRow) -> PromptReceipt {
        PromptReceipt {
            message_id: prompt.id.clone(),
            events: self.events,
            inputs_ahead: u32::try_from(run.inputs_waiting()).unwrap_or(u32::MAX),
            runnable: prompt.reply == Reply::Expected && run.needs_worker(),
            class: run.class,
            queue_position: self.queue_position,
        }
    }
}

/// Stores a prompt that is not stored yet. The caller holds the control row.
///
/// # Errors
/// `Unreadable`; `Db`.
pub(crate) async fn insert(
    tx: &mut Tx,
    tenant: TenantId,
    entry: PromptEntry<'_>,
    run: &ControlRow,
    at: Timestamp,
) -> Result<StoredPrompt, Error> {
    let PromptEntry { prompt, answerer, bytes } = entry;
    let session = &prompt.session_id;
    // The ids that came with the prompt are for its own events. The events before it get ids derived from the first
    // one.
    let prepared = removal::prepare_for_prompt(tx, tenant, session, run).await?;
    let ids = prompt.event_ids.first().into_iter().cycle().enumerate();
    let prepared: Vec<_> =
        ids.zip(prepared).map(|((number, id), event)| Change::event(id.numbered(number), event)).collect();
    let count = prepared.len() + 1 + prompt.parts.len();
    let input = new_input(prompt, Growth { events: count as u64, prompt_bytes: bytes });
    let mailbox = Mailbox { tenant, session, run };
    let queue_position = mailbox.put_in_queue(tx, input).await?;
    let scope = Scope { tenant, session, epoch: run.epoch, at };
    let mut projection = Projection::from(run.event_seq + 1);
    for change in prepared.into_iter().chain(changes(prompt, answerer, at)) {
        projection.add(tx, &scope, &change).await?;
    }
    Ok(StoredPrompt { events: projection.finish(tx, &scope).await?.events, queue_position })
}

fn new_input(prompt: &Prompt, growth: Growth) -> NewInput<'_> {
    let kind = match prompt.reply {
        Reply::Expected => Kind::Prompt,
        Reply::None => Kind::Note,
    };
    let message = InputMessage {
        id: &prompt.id,
        body_sha256: &prompt.body_sha256,
        traceparent: prompt.traceparent.as_deref(),
        with_queue_position: prompt.with_queue_position,
        growth,
    };
    NewInput { message: Some(message), ..NewInput::new(kind, &prompt.dedupe) }
}

/// The message of a prompt and its parts, as changes. Each part is copied when it is its turn: together they may have megabytes.
fn changes(prompt: &Prompt, answerer: Answerer, at: Timestamp) -> impl Iterator<Item = Change> {
    let message = Event::MessageUpdated(Box::new(Message::User(user(prompt, answerer, at))));
    let parts = prompt.parts.iter().map(move |part| Event::PartUpdated { part: Box::new(part.clone()), at });
    let events = std::iter::once(message).chain(parts);
    prompt.event_ids.iter().zip(events).map(|(id, event)| Change::event(id.clone(), event))
}

/// The message of a prompt.
fn user(prompt: &Prompt, answerer: Answerer, at: Timestamp) -> User {
    User {
        id: prompt.id.clone(),
        session_id: prompt.session_id.clone(),
        time: MessageTime { created: at, completed: None },
        agent: answerer.agent,
        model: answerer.model,
        system: prompt.system.clone(),
        tools: prompt.tools.clone(),
        format: prompt.format.clone(),
        summary: None,
    }
}
