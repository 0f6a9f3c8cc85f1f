//! Waiting for the end of a turn.

use crate::{
    app::ground::gateway::Gateway,
    auth::principal::Principal,
    ground::{error::Error, scope::Scope, taken_room::TakenRoom},
    streams::{
        cursor::Start,
        event::StreamEvent,
        subscription::{self, Item, Subscription},
    },
};
use domain::{
    conversation::message::Message,
    event::{MESSAGE_UPDATED, QUARANTINED},
    ids::{MessageId, SessionId},
    session::Phase,
};
use serde::Deserialize;

/// Waits until the turn ends whose prompt has its first event at this position; 0: the next turn that ends. Returns the last answer
/// of that turn, so prompts that share a turn get the same one; none: the turn wrote no answer. The turn continues if the caller
/// disconnects.
///
/// # Errors
/// `session_not_found`, `session_quarantined`, `gateway_stopping`, `bus_unavailable`, `store_unavailable`.
pub(crate) async fn wait_for_turn(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    event_seq: u64,
) -> Result<Option<MessageId>, Error> {
    let start = Start::After(event_seq.saturating_sub(1));
    wait_for_idle(gateway, principal, session, start, event_seq).await
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
    wait_for_idle(gateway, principal, &session.info.id, Start::After(head), head).await.map(drop)
}

async fn wait_for_idle(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    start: Start,
    idle_after: u64,
) -> Result<Option<MessageId>, Error> {
    // This function reads at once, so nothing of the caller's answer needs to be cut.
    let (room, session) = (gateway.stream_room(principal, &TakenRoom::default())?, session.clone());
    let subscription = Subscription { room, session, start, until_idle_after: Some(idle_after) };
    let mut items = subscription::subscribe(&gateway.state, &gateway.hub, subscription).await?;
    let mut answer = None;
    while let Some(item) = items.recv().await {
        match item? {
            Item::Event(event) if event.kind == QUARANTINED => return Err(Error::Quarantined),
            Item::Event(event) => answer = answer_of(&event).or(answer),
            Item::Fragment(_) | Item::Heartbeat(_) => {}
        }
    }
    Ok(answer)
}

/// The answer that an event creates or changes.
fn answer_of(event: &StreamEvent) -> Option<MessageId> {
    #[derive(Deserialize)]
    struct Properties {
        info: Message,
    }
    if event.kind != MESSAGE_UPDATED {
        return None;
    }
    match serde_json::from_slice::<Properties>(&event.properties).ok()?.info {
        Message::Assistant(answer) => Some(answer.id),
        Message::User(_) => None,
    }
}
