//! Accepts prompts: checks, then one transaction (message, parts, input, `runnable`), then hints that may be lost.
// Continues in store::session::inputs, which stores the prompt, and in worker::claim, which receives the hints.

use super::{
    parts,
    request::{PromptPart, PromptRequest},
};
use crate::{
    app::{
        admission, checks,
        choices::{
            agents::{self, AgentUse},
            options,
        },
        gateway::Gateway,
        history::revert,
        sessions::wake,
    },
    auth::principal::{Account, Principal},
    errors::{error::Error, invalid::Invalid},
    quotas::Growth,
    scope::Scope,
    state::{State, now},
};
use domain::{
    conversation::part::{Body, Text},
    ids::{EventId, MessageId, SessionId},
    limits,
    policy::agent::Mode,
    text::json_bytes,
};
use sha2::{Digest as _, Sha256};
use std::io;
use store::session::inputs::{Prompt, PromptReceipt, Reply};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) message_id: MessageId,
    /// Earlier inputs of the session.
    pub(crate) inputs_ahead: u32,
    /// Position of the prompt's first event; 0 for a repeated prompt.
    pub(crate) event_seq: u64,
    /// Position of the session in the queue of its tenant, if the prompt asks for it; 0 if the session does not wait.
    pub(crate) queue_position: u32,
}

/// Accepts a prompt for a session, and wakes a worker.
///
/// # Errors
/// `prompt_empty`, `prompt_too_long`, `idempotency_key_too_long`, `idempotency_key_invalid`, `model_unknown`, `agent_unknown`,
/// `session_not_found`, `idempotency_conflict`, `session_full`, `storage_full`, `session_quarantined`, `session_busy`, `store_unavailable`; those of
/// [`parts`], [`options`] and [`revert::finish`].
pub(crate) async fn accept(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    request: PromptRequest,
) -> Result<Receipt, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let tenant = account.tenant;
    check(state, &request)?;
    options::check_format(state.converter.of(tenant), request.format.as_ref()).await?;
    let subagents = agents::of_parts(request.parts.iter().map(|part| &part.body));
    let primary = AgentUse { name: &request.agent, mode: Mode::Primary };
    agents::check_of_session(state, tenant, session, subagents.chain([primary])).await?;
    let no_reply = request.no_reply;
    let prompt = prompt(state, session, request);
    // Boxed, like the two below: it takes far more memory than waiting, and thousands of requests wait.
    if let Some(repeated) = Box::pin(admit(state, account, &prompt)).await? {
        return Ok(repeated.into());
    }
    let mut accepted = state.store.accept_prompt(tenant, &prompt, now()).await.map_err(Error::from);
    if accepted == Err(Error::RevertUnfinished) {
        // The gateway that started this revert died before it finished, or could not restore all files. Finish the revert first: the
        // client wrote the prompt for the reverted files.
        Box::pin(revert::finish(state, tenant, session)).await?;
        accepted = state.store.accept_prompt(tenant, &prompt, now()).await.map_err(Error::from);
    }
    let accepted = accepted?;
    state.publisher.publish_events(tenant, session, &accepted.events);
    if accepted.runnable {
        wake::wake(state, account, session, accepted.class).await;
    }
    if !no_reply {
        metrics::counter!("flotilla_prompts_total").increment(1);
    }
    Ok(accepted.into())
}

/// Counts a prompt against the quota of its tenant. A repeated prompt stores nothing, so no quota refuses it: its first receipt is returned.
async fn admit(state: &State, account: Account, prompt: &Prompt) -> Result<Option<PromptReceipt>, Error> {
    match admission::admit(state, account, &[Growth::bytes(1)]).await {
        Ok(_) => Ok(None),
        Err(full) => state.store.find_prompt(account.tenant, prompt).await?.ok_or(full).map(Some),
    }
}

impl From<PromptReceipt> for Receipt {
    fn from(accepted: PromptReceipt) -> Self {
        Self {
            message_id: accepted.message_id,
            inputs_ahead: accepted.inputs_ahead,
            event_seq: accepted.events.first().map_or(0, |event| event.seq),
            queue_position: accepted.queue_position,
        }
    }
}

fn check(state: &State, request: &PromptRequest) -> Result<(), Error> {
    // Any part but a blank text is content.
    let has_content = |part: &PromptPart| part.body.as_text().is_none_or(|text| !text.text.trim().is_empty());
    if request.text.trim().is_empty() && !request.parts.iter().any(has_content) {
        return Err(Invalid::PromptEmpty.because("the prompt is empty; say what to do"));
    }
    let text_bytes = request.text.len() + parts::text_bytes(&request.parts);
    let (bytes, limit) = (text_bytes.max(request.system.len()), limits::PROMPT_BYTES_MAX);
    if bytes > limit {
        let message =
            format!("the prompt is {bytes} bytes, the limit is {limit} bytes; move long content into a file");
        return Err(Invalid::PromptTooLong.because(message));
    }
    checks::idempotency_key(&request.idempotency_key)?;
    checks::model(state, request.model.as_ref())?;
    parts::check(state, &request.parts)?;
    parts::check_together(&request.parts, !request.text.is_empty(), request.no_reply)?;
    options::check_variant(request.variant.name().unwrap_or_default())?;
    options::check_tools(&request.tools)
}

fn prompt(state: &State, session: &SessionId, request: PromptRequest) -> Prompt {
    let body_sha256 = body_sha256(&request);
    let id = request.message_id.unwrap_or_else(|| state.id(MessageId::make));
    let dedupe = match request.idempotency_key.as_str() {
        "" => format!("msg:{id}"),
        key => format!("key:{key}"),
    };
    let text = (!request.text.is_empty()).then(|| Text { text: request.text, ..Text::default() });
    let text = text.map(|text| PromptPart::from(Body::Text(text)));
    let all = text.into_iter().chain(request.parts).collect();
    let mut parts = parts::to_stored(state, session, &id, all);
    if request.no_reply {
        parts::mark_as_note(state, &mut parts);
    }
    let is_shell = parts::shell(parts.iter().map(|part| &part.body)).is_some();
    let system = domain::text::without_nul(&request.system).into_owned();
    Prompt {
        event_ids: (0..=parts.len()).map(|_| state.id(EventId::make)).collect(),
        id,
        session_id: session.clone(),
        agent: (!request.agent.is_empty()).then_some(request.agent),
        model: request.model,
        variant: request.variant,
        tools: (!request.tools.is_empty()).then_some(request.tools),
        format: request.format,
        system: (!system.is_empty()).then_some(system),
        parts,
        dedupe,
        body_sha256,
        traceparent: rpc::trace::current_traceparent(),
        only_when_idle: is_shell,
        with_queue_position: request.with_queue_position,
        reply: if request.no_reply { Reply::None } else { Reply::Expected },
    }
}

/// The hash by which a repeated prompt is recognized. It covers what the client sent, not what the session adds: the agent and the model of the
/// session may change between two attempts.
fn body_sha256(request: &PromptRequest) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |field: &str| {
        hash.update(field.len().to_le_bytes());
        hash.update(field.as_bytes());
    };
    let (provider, model) =
        request.model.as_ref().map_or(("", ""), |model| (&*model.provider_id, &*model.model_id));
    for field in [request.text.as_str(), provider, model, &request.agent, &request.system] {
        add(field);
    }
    let parts: Vec<_> = request.parts.iter().map(|part| (&part.id, &part.body)).collect();
    let PromptRequest { variant, tools, format, no_reply, message_id, .. } = request;
    let variant = variant.name().unwrap_or_default();
    let is_plain = parts.is_empty() && variant.is_empty() && tools.is_empty();
    if !is_plain || format.is_some() || *no_reply || message_id.is_some() {
        // Texts, numbers and maps with text keys: this is always valid JSON. It may be large, so nothing keeps it.
        let rest = (&parts, variant, tools, format, no_reply, message_id);
        hash.update(json_bytes(&rest).to_le_bytes());
        serde_json::to_writer(HashWriter(&mut hash), &rest).unwrap_or_default();
    }
    hash.finalize().into()
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
