//! Waiting for the end of a turn.

use crate::{
    app::{gateway::Gateway, prompts::accept::Receipt},
    auth::principal::Principal,
    errors::error::Error,
    memory::taken_room::TakenRoom,
    scope::Scope,
    streams::{
        cursor::Start,
        event::StreamEvent,
        subscription::{self, Item, Subscription},
    },
};
use domain::{
    conversation::message::{Assistant, Message},
    event::{MESSAGE_UPDATED, QUARANTINED},
    ids::{MessageId, SessionId},
    session::Phase,
};
use serde::Deserialize;

/// The answers of a turn that its callers read.
#[derive(Debug, Default)]
pub(crate) struct TurnAnswers {
    /// The last one: prompts that share a turn get the same one. `None`: the turn wrote no answer.
    pub(crate) last: Option<MessageId>,
    /// The last one to the caller's own message.
    pub(crate) own: Option<MessageId>,
}

/// Waits until the turn ends to which a prompt belongs: the turn of its first event, or for a repeated prompt the next turn that ends. The turn continues if
/// the caller disconnects.
///
/// # Errors
/// `session_not_found`, `session_quarantined`, `gateway_stopping`, `bus_unavailable`, `store_unavailable`.
pub(crate) async fn wait_for_turn(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    receipt: &Receipt,
) -> Result<TurnAnswers, Error> {
    let Receipt { message_id, event_seq, .. } = receipt;
    let start = Start::After(event_seq.saturating_sub(1));
    let wait = TurnWait { start, idle_after: *event_seq, prompt: Some(message_id) };
    wait_for_idle(gateway, principal, session, wait).await
}

/// Waits until a session is idle.
///
/// # Errors
/// Those of [`wait_for_turn`].
pub(crate) async fn wait(gateway: &Gateway, principal: &Principal, session: &SessionId) -> Result<(), Error> {
    let session = gateway.state.store.get_session(principal.tenant(Scope::Read)?, session).await?;
    match session.phase {
        Phase::Idle => return Ok(()),
        Phase::Quarantined => return Err(Error::Quarantined),
        Phase::Runnable | Phase::Running | Phase::Waiting => {}
    }
    let head = session.event_seq;
    let wait = TurnWait { start: Start::After(head), idle_after: head, prompt: None };
    wait_for_idle(gateway, principal, &session.info.id, wait).await.map(drop)
}

struct TurnWait<'a> {
    start: Start,
    /// The session must be idle after this position.
    idle_after: u64,
    /// The message whose own answer the caller may want.
    prompt: Option<&'a MessageId>,
}

async fn wait_for_idle(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    wait: TurnWait<'_>,
) -> Result<TurnAnswers, Error> {
    let TurnWait { start, idle_after, prompt } = wait;
    // This function reads at once, so nothing of the caller's answer needs to be cut.
    let (room, session) = (gateway.begin_stream(principal, &TakenRoom::default()).await?, session.clone());
    let subscription = Subscription { room, session, start, until_idle_after: Some(idle_after) };
    let mut items = subscription::subscribe(&gateway.state, &gateway.hub, subscription).await?;
    let mut answers = TurnAnswers::default();
    while let Some(item) = items.recv().await {
        match item? {
            Item::Event(event) if event.kind == QUARANTINED => return Err(Error::Quarantined),
            Item::Event(event) => {
                if let Some(answer) = answer_of(&event) {
                    if prompt == Some(&answer.parent_id) {
                        answers.own = Some(answer.id.clone());
                    }
                    answers.last = Some(answer.id);
                }
            }
            Item::Fragment(_) | Item::Notice(_) | Item::Heartbeat(_) => {}
        }
    }
    Ok(answers)
}

/// The answer that an event creates or changes.
fn answer_of(event: &StreamEvent) -> Option<Box<Assistant>> {
    #[derive(Deserialize)]
    struct Properties {
        info: Message,
    }
    if event.kind != MESSAGE_UPDATED {
        return None;
    }
    match serde_json::from_slice::<Properties>(&event.properties).ok()?.info {
        Message::Assistant(answer) => Some(answer),
        Message::User(_) => None,
    }
}
