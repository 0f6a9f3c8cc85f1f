//! Edits of people in a conversation.

use crate::{
    app::{
        gateway::Gateway,
        history::edits::{self, PartPath},
    },
    errors::invalid::Invalid,
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Body, Path},
            ids::{message_id, part_id, session_id},
        },
        refusal::{RequestPart, Result},
    },
};
use axum::{Json, extract::State};
use domain::conversation::part::Part;
use serde::Deserialize;
use store::log::edits::Edit;

pub(in crate::http) async fn remove_message(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<bool>> {
    let edit = Edit::RemoveMessage(message_id(&message)?);
    edits::edit(&gateway, &caller.principal, &session_id(&session)?, &edit).await?;
    Ok(Json(true))
}

pub(in crate::http) async fn remove_part(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, message, part)): Path<(String, String, String)>,
) -> Result<Json<bool>> {
    let edit = Edit::RemovePart(message_id(&message)?, part_id(&part)?);
    edits::edit(&gateway, &caller.principal, &session_id(&session)?, &edit).await?;
    Ok(Json(true))
}

/// A whole part. Only its text may differ from the stored one.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct PartBody {
    id: String,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Changes the text of a part. Tool calls and attachments cannot be changed.
pub(in crate::http) async fn change_part(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, message, part)): Path<(String, String, String)>,
    Body(body): Body<PartBody>,
) -> Result<Json<Part>> {
    if body.id != part || body.message != message {
        return Err(RequestPart::Body.unreadable("the body is not the part that the path names"));
    }
    if body.kind != "text" {
        let message = "only the text of a text part can be changed";
        return Err(Invalid::PartUnchangeable.because(message).into());
    }
    let path = PartPath { message: message_id(&message)?, part: part_id(&part)? };
    let session = session_id(&session)?;
    Ok(Json(edits::replace_text(&gateway, &caller.principal, &session, path, &body.text).await?))
}
