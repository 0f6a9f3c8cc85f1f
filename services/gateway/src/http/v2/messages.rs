//! Prompts of the newer API, which responds as soon as they are stored, and messages.

use super::shape;
use crate::{
    app::{
        gateway::Gateway,
        history::messages::{self, Extent},
        page::{List, PageRequest},
        prompts::request::{PromptPart, PromptRequest},
    },
    errors::{entity::Entity, error::Error, invalid::Invalid},
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Body, Path, Query},
            ids::{message_id, session_id},
            prompt,
        },
        refusal::Result,
        v1::messages::accept,
    },
    memory::room::PAGE_BYTES,
};
use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{
    conversation::{
        media,
        message::{Assistant, Message},
        part::{self, Text, attached},
    },
    ids::SessionId,
    limits,
    text::json_bytes,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;
use store::log::messages::MessageWithParts;

/// Messages of a page if the client sets no limit.
const PAGE_DEFAULT: u32 = 50;
/// Messages of a context, about: whole pages are read. A session with more needs no summary only if they are very short. Older messages are
/// left out.
const CONTEXT_MESSAGES_MAX: usize = 2_000;
/// Bytes of a context: three pages. Few models take so much. Beyond it: `history_too_large`.
const CONTEXT_BYTES_MAX: usize = 3 * PAGE_BYTES;

#[derive(Debug, Deserialize)]
pub(in crate::http) struct AdmitBody {
    id: Option<String>,
    prompt: Prompt,
    #[serde(default)]
    delivery: Delivery,
    #[serde(default = "yes")]
    resume: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct Prompt {
    text: String,
    #[serde(default)]
    files: Vec<File>,
    #[serde(default)]
    agents: Vec<Agent>,
}

#[derive(Debug, Deserialize)]
struct File {
    uri: String,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Agent {
    name: String,
}

/// When a running turn sees a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Delivery {
    /// With its next step.
    #[default]
    Steer,
    /// After the turn.
    Queue,
}

impl Prompt {
    fn parts(self) -> Vec<PromptPart> {
        let text = (!self.text.is_empty()).then(|| Text { text: self.text, ..Text::default() });
        let text = text.map(part::Body::Text);
        let file = |file: File| {
            let (mime, url) = (mime(&file.uri), file.uri);
            let filename = file.name.filter(|name| !name.is_empty());
            part::Body::File(attached::File { mime, filename, url, source: None })
        };
        let agent = |agent: Agent| part::Body::Agent(attached::Mention { name: agent.name, source: None });
        let bodies = text.into_iter().chain(self.files.into_iter().map(file));
        bodies.chain(self.agents.into_iter().map(agent)).map(Into::into).collect()
    }
}

/// The media type of a file by its URL: the newer API does not name it.
fn mime(uri: &str) -> String {
    let of_data = uri.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
    let mime = of_data.filter(|mime| !mime.is_empty()).or_else(|| media::of_name(uri));
    mime.unwrap_or("text/plain").to_owned()
}

/// Stores a prompt. A repeated prompt gets the same receipt.
pub(in crate::http) async fn admit(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<AdmitBody>,
) -> Result<Json<Value>> {
    let session = session_id(&session)?;
    if body.delivery == Delivery::Queue {
        let message = "a running turn sees a prompt with its next step; the only delivery is steer";
        return Err(Invalid::DeliveryUnknown.because(message).into());
    }
    let request = PromptRequest {
        message_id: prompt::message_id(body.id.as_deref().unwrap_or_default())?,
        parts: body.prompt.parts(),
        no_reply: !body.resume,
        ..PromptRequest::default()
    };
    let message = accept(&gateway, &caller, &session, request).await?.message_id;
    let entry = messages::get_stored(&gateway, &caller.principal, &session, &message).await?;
    let created = match &entry.message {
        Message::User(user) => user.time.created,
        Message::Assistant(step) => step.time.created,
    };
    Ok(Json(json!({"data": {
        "admittedSeq": entry.seq, "id": message, "sessionID": session, "prompt": shape::prompt(&entry.parts),
        "delivery": "steer", "timeCreated": created,
    }})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    limit: Option<u32>,
    order: Order,
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    /// The newest first.
    #[default]
    Desc,
}

/// The start of a page.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Cursor {
    order: Order,
    from: Side,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Before(u64),
    After(u64),
}

impl Side {
    /// The starts of the pages with older and newer messages.
    fn around(self, page: &[MessageWithParts]) -> (Self, Self) {
        match (page, self) {
            ([oldest, .., newest], _) => (Self::Before(oldest.seq), Self::After(newest.seq)),
            ([only], _) => (Self::Before(only.seq), Self::After(only.seq)),
            ([], Self::After(seq)) => (Self::Before(seq.saturating_add(1)), self),
            ([], Self::Before(seq)) => (self, Self::After(seq.saturating_sub(1))),
        }
    }
}

impl Cursor {
    fn read(text: &str) -> Result<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let cursor = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        cursor.ok_or_else(|| Invalid::Cursor.because("the cursor is not from this list").into())
    }

    fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self).unwrap_or_default())
    }

    /// Whether the page continues in the direction of the list.
    fn is_forward(self) -> bool {
        matches!((self.order, self.from), (Order::Asc, Side::After(_)) | (Order::Desc, Side::Before(_)))
    }
}

pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>> {
    gateway.take_page_room(&caller.principal, &caller.taken).await?;
    let session = session_id(&session)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    let begin = match query.order {
        Order::Asc => Side::After(0),
        Order::Desc => Side::Before(i64::MAX as u64),
    };
    let query_cursor = query.cursor.as_deref().map(Cursor::read).transpose()?;
    let cursor = query_cursor.unwrap_or(Cursor { order: query.order, from: begin });
    let side = read_side(&gateway, &caller, &session, cursor.from, limit);
    let (entries, has_more) = caller.reading(&gateway, &session, side).await?;
    let (older, newer) = cursor.from.around(&entries);
    let (next, previous) = match cursor.order {
        Order::Asc => (newer, older),
        Order::Desc => (older, newer),
    };
    let text = |from: Side| Cursor { order: cursor.order, from }.text();
    let mut links = json!({});
    if has_more || !cursor.is_forward() {
        links["next"] = text(next).into();
    }
    if query_cursor.is_some() && (has_more || cursor.is_forward()) {
        links["previous"] = text(previous).into();
    }
    let mut data: Vec<Value> = entries.into_iter().filter_map(|entry| shape::message(&entry)).collect();
    if cursor.order == Order::Desc {
        data.reverse();
    }
    Ok(Json(json!({"data": data, "cursor": links})))
}

/// The messages on one side of a position, oldest first, and whether there are more.
async fn read_side(
    gateway: &Gateway,
    caller: &Caller,
    session: &SessionId,
    side: Side,
    limit: u32,
) -> Result<(Vec<MessageWithParts>, bool)> {
    let principal = &caller.principal;
    Ok(match side {
        Side::After(seq) => {
            let page = messages::list_after(gateway, principal, session, seq, limit).await?;
            (page.entries, page.has_more)
        }
        Side::Before(seq) => {
            let page = PageRequest { limit: Some(limit), cursor: Some(seq.to_string()) };
            let list = messages::list(gateway, principal, session, page, Extent::OnePage).await?;
            let List { entries, next } = list;
            (entries, next.is_some())
        }
    })
}

/// The messages that models get: the last summary and everything after it, oldest first.
pub(in crate::http) async fn context(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    let session = session_id(&session)?;
    let (mut data, mut cursor, mut bytes, mut room_bytes) = (VecDeque::new(), None, 0, 0);
    'pages: loop {
        if bytes >= room_bytes {
            gateway.take_page_room(&caller.principal, &caller.taken).await?;
            room_bytes += PAGE_BYTES;
        }
        let page = PageRequest { limit: Some(limits::PAGE_MAX), cursor };
        let list = messages::list(&gateway, &caller.principal, &session, page, Extent::OnePage).await?;
        for entry in list.entries.into_iter().rev() {
            let is_summary = |step: &Assistant| step.is_summary() && step.time.completed.is_some();
            let is_first = matches!(&entry.message, Message::Assistant(step) if is_summary(step) && step.error.is_none());
            if let Some(message) = shape::message(&entry) {
                bytes += json_bytes(&message);
                data.push_front(message);
            }
            if bytes > CONTEXT_BYTES_MAX {
                return Err(Error::AnswerTooLarge(CONTEXT_BYTES_MAX).into());
            }
            if is_first {
                break 'pages;
            }
        }
        cursor = list.next;
        if cursor.is_none() || data.len() >= CONTEXT_MESSAGES_MAX {
            break;
        }
    }
    Ok(Json(json!({"data": data})))
}

pub(in crate::http) async fn get(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<Value>> {
    gateway.take_page_room(&caller.principal, &caller.taken).await?;
    let (session, message) = (session_id(&session)?, message_id(&message)?);
    let entry = messages::get(&gateway, &caller.principal, &session, &message).await?;
    let data = shape::message(&entry).ok_or(Error::NotFound(Entity::Message))?;
    Ok(Json(json!({"data": data})))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_media_type_follows_from_the_url() {
        for (uri, want) in [
            ("data:image/png;base64,AA==", "image/png"),
            ("data:,x", "text/plain"),
            ("file:///a/b.PDF", "application/pdf"),
            ("file:///a/b.rs", "text/plain"),
        ] {
            assert_eq!(mime(uri), want, "{uri}");
        }
    }

    #[test]
    fn cursors_survive_a_round_trip() {
        let cursor = Cursor { order: Order::Asc, from: Side::After(7) };
        let read = Cursor::read(&cursor.text()).unwrap();
        assert!(read.is_forward() && matches!(read.from, Side::After(7)));
        assert!(Cursor::read("x").is_err());
    }
}
