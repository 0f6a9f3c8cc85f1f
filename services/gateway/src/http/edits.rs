//! What people change in a conversation themselves, while nothing works on it.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::Body,
    sessions::id,
    shape,
};
use crate::{
    grpc::from_store,
    state::{State, now},
};
use axum::{
    Json,
    extract::{Path, State as Shared},
};
use domain::{
    ids::{EventId, MessageId, PartId},
    limits,
};
use rpc::status::invalid;
use serde::Deserialize;
use serde_json::Value;
use store::{
    error::{Entity, Error},
    log::edits::Edit,
};

/// Makes a change, and tells whoever follows the session.
pub(super) async fn edit(state: &State, caller: &Caller, session: &str, edit: &Edit) -> Result<()> {
    let (tenant, session, event) = (caller.principal.tenant, id(session)?, state.id(EventId::make));
    let events = state.store.edit(tenant, &session, edit, &event, now()).await.map_err(from_store)?;
    state.publisher.publish_events(tenant, &session, &events);
    Ok(())
}

fn message_id(text: &str) -> Result<MessageId> {
    text.parse().map_err(|_| Error::NotFound(Entity::Message).into())
}

fn part_id(text: &str) -> Result<PartId> {
    text.parse().map_err(|_| Error::NotFound(Entity::Part).into())
}

pub(super) async fn remove_message(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<bool>> {
    edit(&state, &caller, &session, &Edit::RemoveMessage(message_id(&message)?)).await?;
    Ok(Json(true))
}

pub(super) async fn remove_part(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, message, part)): Path<(String, String, String)>,
) -> Result<Json<bool>> {
    edit(&state, &caller, &session, &Edit::RemovePart(message_id(&message)?, part_id(&part)?)).await?;
    Ok(Json(true))
}

/// A whole part, of which only the text may differ.
#[derive(Debug, Deserialize)]
pub(super) struct Changed {
    id: String,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Changes the text of a part. What tools did and what was attached stays what it was.
pub(super) async fn change_part(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, message, part)): Path<(String, String, String)>,
    Body(changed): Body<Changed>,
) -> Result<Json<Value>> {
    if changed.id != part || changed.message != message {
        let message = "the body is another part than the path names".to_owned();
        return Err(Refused::Unreadable("Body", message));
    }
    if changed.kind != "text" {
        return Err(invalid("part_unchangeable", "only the text of a text part can be changed").into());
    }
    if changed.text.len() > limits::PROMPT_BYTES_MAX {
        let message = format!("a text has at most {} bytes", limits::PROMPT_BYTES_MAX);
        return Err(invalid("text_too_long", message).into());
    }
    let (message, part) = (message_id(&message)?, part_id(&part)?);
    let text = domain::text::without_nul(&changed.text).into_owned();
    edit(&state, &caller, &session, &Edit::Text(message.clone(), part.clone(), text)).await?;
    let entry = state.store.get_message(caller.principal.tenant, &id(&session)?, &message).await?;
    let changed = entry.parts.iter().find(|(_, known)| known.id == part);
    Ok(Json(shape::part(&changed.ok_or(Error::NotFound(Entity::Part))?.1)))
}
