//! Where every way in ends: checks, then one transaction (message, parts, mailbox, `runnable`), then hints that may be
//! lost.
// Continues in store::inputs, which stores the prompt, and worker::claim, which hears the hints.

use crate::{auth::Principal, grpc::from_store, state::State, state::now};
use domain::{
    agent::Agent,
    ids::{EventId, MessageId, PartId, SessionId},
    limits,
    message::{MessageTime, ModelRef, User},
    mutant::{self, Mutant},
    part::{Body, Part, Text},
};
use rpc::status::invalid;
use sha2::{Digest as _, Sha256};
use store::{
    error::Error,
    inputs::{Accepted, Prompt},
};
use tonic::Status;

/// A prompt as it came in, from wherever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) text: String,
    pub(crate) model: Option<ModelRef>,
    pub(crate) agent: String,
    pub(crate) system: String,
    pub(crate) idempotency_key: String,
}

/// Accepts a prompt for a session, and wakes a worker.
///
/// # Errors
/// With stable codes: `prompt_empty`, `prompt_too_long`, `idempotency_key_too_long`, `idempotency_key_invalid`,
/// `model_unknown`, `agent_unknown`, `session_not_found`, `idempotency_conflict`, `session_full`, `session_quarantined`,
/// `store_unavailable`.
pub(crate) async fn accept(
    state: &State,
    principal: &Principal,
    session: &SessionId,
    asked: Asked,
) -> Result<Accepted, Status> {
    check(state, &asked)?;
    let known = state.store.get_session(principal.tenant, session).await.map_err(from_store)?;
    let class = known.class;
    let model = asked
        .model
        .clone()
        .unwrap_or(ModelRef { provider_id: known.info.model.provider_id, model_id: known.info.model.id });
    let agent = if asked.agent.is_empty() { known.info.agent } else { asked.agent.clone() };
    let prompt = prompt(state, session, &asked, model, agent);
    let accepted = state.store.accept_prompt(principal.tenant, &prompt, now()).await.map_err(from_store)?;
    state.publisher.publish_events(principal.tenant, session, &accepted.events);
    if accepted.runnable {
        state.wake(principal, session, class).await;
    }
    metrics::counter!("flotilla_prompts_total").increment(1);
    Ok(accepted)
}

/// Asks the running turn and all subtasks below it to stop. Gives whether there was one.
///
/// # Errors
/// `session_not_found`, `session_quarantined`, `store_unavailable`.
pub(crate) async fn abort(state: &State, principal: &Principal, session: &SessionId) -> Result<bool, Status> {
    let tenant = principal.tenant;
    let dedupe = format!("abort:{}", state.id(EventId::make));
    if mutant::on(Mutant::AbortAnnouncedOnly) {
        state.bus.nudge(tenant, session);
        return Ok(true);
    }
    let accepted = match state.store.accept_abort(tenant, session, &dedupe).await {
        // Nobody takes it, but what works below it is to end all the same.
        Err(error @ Error::Quarantined) => Err(error),
        other => Ok(other.map_err(from_store)?),
    };
    if let Ok(Some(accepted)) = &accepted {
        state.interrupt(principal, session, accepted.class).await;
    }
    // The parent's own loop tells its children too; but it may have to wait for a worker, and they work meanwhile.
    for below in state.store.abort_below(tenant, session, &dedupe).await.map_err(from_store)? {
        state.interrupt(principal, &below.session, below.class).await;
    }
    Ok(accepted.map_err(from_store)?.is_some())
}

fn check(state: &State, asked: &Asked) -> Result<(), Status> {
    if asked.text.trim().is_empty() {
        return Err(invalid("prompt_empty", "the prompt is empty: say what is to be done"));
    }
    if asked.text.len() > limits::PROMPT_BYTES_MAX || asked.system.len() > limits::PROMPT_BYTES_MAX {
        let length = asked.text.len().max(asked.system.len());
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
    check_agent(&asked.agent)
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

/// Refuses an agent that does not exist.
pub(crate) fn check_agent(agent: &str) -> Result<(), Status> {
    if agent.is_empty() || Agent::parse(agent).is_some() {
        return Ok(());
    }
    let agent = domain::text::head(agent, limits::NAME_BYTES_MAX);
    let known: Vec<&str> = Agent::ALL.iter().map(|agent| agent.as_str()).collect();
    Err(invalid("agent_unknown", format!("there is no agent {agent:?}; there are: {}", known.join(", "))))
}

fn prompt(state: &State, session: &SessionId, asked: &Asked, model: ModelRef, agent: String) -> Prompt {
    let mut hash = Sha256::new();
    for field in [&asked.text, &model.provider_id, &model.model_id, &agent, &asked.system] {
        hash.update(field.len().to_le_bytes());
        hash.update(field.as_bytes());
    }
    let id = state.id(MessageId::make);
    let text = domain::text::without_nul(&asked.text).into_owned();
    let part = Part {
        id: state.id(PartId::make),
        session_id: session.clone(),
        message_id: id.clone(),
        body: Body::Text(Text { text, ..Text::default() }),
    };
    let dedupe = if asked.idempotency_key.is_empty() || mutant::on(Mutant::DedupeOff) {
        format!("msg:{id}")
    } else {
        format!("key:{}", asked.idempotency_key)
    };
    let system = domain::text::without_nul(&asked.system).into_owned();
    Prompt {
        user: User {
            id,
            session_id: session.clone(),
            time: MessageTime { created: now(), completed: None },
            agent,
            model: model.into(),
            tools: None,
            format: None,
            summary: None,
            system: (!system.is_empty()).then_some(system),
        },
        parts: vec![part],
        dedupe,
        body_sha256: hash.finalize().into(),
        traceparent: rpc::trace::current_traceparent(),
        event_ids: vec![state.id(EventId::make), state.id(EventId::make)],
    }
}
