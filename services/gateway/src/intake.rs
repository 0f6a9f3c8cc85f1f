//! Where every way in ends: checks, then one transaction (message, parts, mailbox, `runnable`), then hints that may be
//! lost.
// Continues in store::session::inputs, which stores the prompt, and worker::claim, which hears the hints.

pub(crate) mod agents;
pub(crate) mod parts;
mod settings;

use crate::{auth::Principal, grpc::from_store, history, state::State, state::now};
use agents::Place;
use bus::queue::QueueEntry;
use domain::{
    agent::Mode,
    ids::{EventId, MessageId, SessionId},
    limits,
    message::{Format, MessageTime, ModelChoice, ModelRef, User},
    mutant::{self, Mutant},
    part::{Body, Text},
};
use parts::AskedPart;
use rpc::status::invalid;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use store::{
    error::Error,
    session::inputs::{Prompt, PromptReceipt, Reply},
};
use tonic::Status;

/// A prompt as it came in, from wherever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// The first part, unless it is empty.
    pub(crate) text: String,
    pub(crate) parts: Vec<AskedPart>,
    pub(crate) model: Option<ModelRef>,
    pub(crate) variant: String,
    pub(crate) agent: String,
    pub(crate) system: String,
    /// Tools that are switched off for it.
    pub(crate) tools: BTreeMap<String, bool>,
    pub(crate) format: Option<Format>,
    /// Whether nothing is to be started.
    pub(crate) no_reply: bool,
    pub(crate) message_id: Option<MessageId>,
    pub(crate) idempotency_key: String,
}

/// Accepts a prompt for a session, and wakes a worker.
///
/// # Errors
/// With stable codes: `prompt_empty`, `prompt_too_long`, `idempotency_key_too_long`, `idempotency_key_invalid`,
/// `model_unknown`, `agent_unknown`, `session_not_found`, `idempotency_conflict`, `session_full`,
/// `session_quarantined`, `session_busy`, `store_unavailable`; those of [`parts`], [`settings`] and [`history::finish`].
pub(crate) async fn accept(
    state: &State,
    principal: &Principal,
    session: &SessionId,
    asked: Asked,
) -> Result<PromptReceipt, Status> {
    check(state, &asked)?;
    let known = state.store.get_session(principal.tenant, session).await.map_err(from_store)?;
    let place = Place { tenant: principal.tenant, project: &known.info.project_id, source: &known.source };
    let wanted = agents::of_parts(asked.parts.iter().map(|part| &part.body));
    agents::check(state, place, wanted.chain([(asked.agent.as_str(), Mode::Primary)])).await?;
    let class = known.class;
    let model = asked
        .model
        .clone()
        .unwrap_or(ModelRef { provider_id: known.info.model.provider_id, model_id: known.info.model.id });
    let agent = if asked.agent.is_empty() { known.info.agent } else { asked.agent.clone() };
    let no_reply = asked.no_reply;
    let prompt = prompt(state, session, asked, model, agent);
    let mut accepted = state.store.accept_prompt(principal.tenant, &prompt, now()).await;
    if let Err(Error::RevertUnfinished) = &accepted {
        // Whoever was about to revert the files is gone: the prompt is meant for what they shall be.
        history::finish(state, principal.tenant, session).await?;
        accepted = state.store.accept_prompt(principal.tenant, &prompt, now()).await;
    }
    let accepted = accepted.map_err(from_store)?;
    state.publisher.publish_events(principal.tenant, session, &accepted.events);
    if accepted.runnable {
        state.wake(principal, session, class).await;
    }
    if !no_reply {
        metrics::counter!("flotilla_prompts_total").increment(1);
    }
    Ok(accepted)
}

/// What an abort found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// A turn, which ends.
    Turn,
    /// Nothing to stop.
    Idle,
    /// Nobody takes an abort of the session itself before an operator releases it.
    Quarantined,
}

/// Asks the running turn and all subtasks below it to stop.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn abort(
    state: &State,
    principal: &Principal,
    session: &SessionId,
) -> Result<Aborted, Status> {
    let (tenant, share) = (principal.tenant, Some(principal.share));
    let dedupe = format!("abort:{}", state.id(EventId::make));
    if mutant::on(Mutant::AbortAnnouncedOnly) {
        state.bus.nudge(tenant, session);
        return Ok(Aborted::Turn);
    }
    let (found, accepted) = match state.store.accept_abort(tenant, session, &dedupe).await {
        // What works below it is to end all the same.
        Err(Error::Quarantined) => (Aborted::Quarantined, None),
        Err(error) => return Err(from_store(error)),
        Ok(None) => (Aborted::Idle, None),
        Ok(Some(accepted)) => (Aborted::Turn, Some(accepted)),
    };
    if accepted.is_some() {
        // Its own loop must not wait until all below it are told.
        state.bus.nudge(tenant, session);
    }
    // The parent's own loop tells its children too; but it may have to wait for a worker, and they work meanwhile.
    let below = state.store.abort_below(tenant, session, &dedupe).await;
    let reached = accepted.iter().chain(below.iter().flatten());
    let entries: Vec<_> =
        reached.map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share }).collect();
    state.bus.interrupt(&entries).await;
    below.map_err(from_store)?;
    Ok(found)
}

fn check(state: &State, asked: &Asked) -> Result<(), Status> {
    let says = |part: &AskedPart| match &part.body {
        Body::Text(text) => !text.text.trim().is_empty(),
        _ => true,
    };
    if asked.text.trim().is_empty() && !asked.parts.iter().any(says) {
        return Err(invalid("prompt_empty", "the prompt is empty: say what is to be done"));
    }
    let text_bytes = asked.text.len() + parts::text_bytes(&asked.parts);
    if text_bytes > limits::PROMPT_BYTES_MAX || asked.system.len() > limits::PROMPT_BYTES_MAX {
        let length = text_bytes.max(asked.system.len());
        return Err(invalid(
            "prompt_too_long",
            format!(
                "the prompt has {length} bytes; at most {} are taken: put the rest into a file",
                limits::PROMPT_BYTES_MAX
            ),
        ));
    }
    check_key(&asked.idempotency_key)?;
    check_model(state, asked.model.as_ref())?;
    parts::check(state, &asked.parts)?;
    parts::check_together(&asked.parts, !asked.text.is_empty(), asked.no_reply)?;
    settings::check_variant(&asked.variant)?;
    settings::check_tools(&asked.tools)?;
    settings::check_format(asked.format.as_ref())
}

/// Refuses an idempotency key that cannot be stored.
pub(crate) fn check_key(key: &str) -> Result<(), Status> {
    if key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX {
        let message = format!("an idempotency key has at most {} bytes", limits::IDEMPOTENCY_KEY_BYTES_MAX);
        return Err(invalid("idempotency_key_too_long", message));
    }
    if key.contains('\0') {
        return Err(invalid("idempotency_key_invalid", "an idempotency key has no zero bytes"));
    }
    Ok(())
}

/// Refuses a model that no worker knows.
pub(crate) fn check_model(state: &State, model: Option<&ModelRef>) -> Result<(), Status> {
    let Some(model) = model.filter(|model| !state.models.contains(model)) else { return Ok(()) };
    let known: Vec<String> =
        state.models.iter().map(|m| format!("{}/{}", m.provider_id, m.model_id)).collect();
    let asked = format!("{}/{}", model.provider_id, model.model_id);
    let asked = domain::text::head(&asked, limits::NAME_BYTES_MAX);
    Err(invalid("model_unknown", format!("there is no model {asked} here; there are: {}", known.join(", "))))
}

fn prompt(state: &State, session: &SessionId, asked: Asked, model: ModelRef, agent: String) -> Prompt {
    let body_sha256 = body_sha256(&asked, &model, &agent);
    let is_named = asked.message_id.is_some();
    let id = asked.message_id.unwrap_or_else(|| state.id(MessageId::make));
    let dedupe = match asked.idempotency_key.as_str() {
        key if !key.is_empty() && !mutant::on(Mutant::DedupeOff) => format!("key:{key}"),
        _ if is_named && mutant::on(Mutant::DedupeOff) => format!("msg:{}", state.id(MessageId::make)),
        _ => format!("msg:{id}"),
    };
    let text = Body::Text(Text { text: asked.text, ..Text::default() });
    let first = matches!(&text, Body::Text(text) if !text.text.is_empty());
    let mut all: Vec<AskedPart> = first.then_some(AskedPart { id: None, body: text }).into_iter().collect();
    all.extend(asked.parts);
    let mut parts = parts::stored(state, (session, &id), all);
    if asked.no_reply {
        parts::mark_as_note(state, &mut parts);
    }
    let is_shell = parts::shell(parts.iter().map(|part| &part.body)).is_some();
    let system = domain::text::without_nul(&asked.system).into_owned();
    Prompt {
        event_ids: (0..=parts.len()).map(|_| state.id(EventId::make)).collect(),
        user: User {
            id,
            session_id: session.clone(),
            time: MessageTime { created: now(), completed: None },
            agent,
            model: ModelChoice { model, variant: (!asked.variant.is_empty()).then_some(asked.variant) },
            tools: (!asked.tools.is_empty()).then_some(asked.tools),
            format: asked.format,
            summary: None,
            system: (!system.is_empty()).then_some(system),
        },
        parts,
        dedupe,
        body_sha256,
        traceparent: rpc::trace::current_traceparent(),
        only_when_idle: is_shell,
        reply: if asked.no_reply { Reply::None } else { Reply::Expected },
    }
}

/// What the caller sent, in short. A prompt of nothing but a text is the same to a gateway that knows no more.
fn body_sha256(asked: &Asked, model: &ModelRef, agent: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |field: &str| {
        hash.update(field.len().to_le_bytes());
        hash.update(field.as_bytes());
    };
    for field in [asked.text.as_str(), &model.provider_id, &model.model_id, agent, &asked.system] {
        add(field);
    }
    let parts: Vec<_> = asked.parts.iter().map(|part| (&part.id, &part.body)).collect();
    let more = (&parts, &asked.variant, &asked.tools, &asked.format, asked.no_reply, &asked.message_id);
    let is_plain = parts.is_empty() && asked.variant.is_empty() && asked.tools.is_empty();
    if !is_plain || asked.format.is_some() || asked.no_reply || asked.message_id.is_some() {
        // Made of texts, numbers and maps with text keys: always JSON.
        add(&serde_json::to_string(&more).unwrap_or_default());
    }
    hash.finalize().into()
}
