//! Prompts of the newer API, which are admitted and not waited for, and what was said.

use super::{
    super::{
        caller::Caller,
        error::{Refused, Result},
        input::{Body, Query},
        prompt::located,
        sessions::id,
    },
    shape,
};
use crate::{
    grpc,
    messages::{self, Said},
    state::State,
};
use axum::{
    Json,
    extract::{Path, State as Shared},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{ids::MessageId, limits, media};
use rpc::{
    status::invalid,
    v1::{self, prompt_part::Kind, prompt_service_server::PromptService as _},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{
    Page,
    error::{Entity, Error},
};

/// Messages of a page when the client does not say how many.
const PAGE_DEFAULT: u32 = 50;

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Admitted {
    id: Option<String>,
    prompt: Prompt,
    #[serde(default)]
    delivery: Delivery,
    #[serde(default = "wanted")]
    resume: bool,
}

fn wanted() -> bool {
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

/// When a turn that goes on sees a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Delivery {
    /// With its next step.
    #[default]
    Steer,
    /// When it is over.
    Queue,
}

impl Prompt {
    fn parts(self) -> Vec<v1::PromptPart> {
        let text = (!self.text.is_empty()).then_some(Kind::Text(self.text));
        let file = |file: File| {
            let (mime, url) = (mime(&file.uri), file.uri);
            let filename = file.name.unwrap_or_default();
            Kind::File(v1::FilePart { mime, filename, url, source_json: String::new() })
        };
        let agent =
            |agent: Agent| Kind::Agent(v1::AgentPart { name: agent.name, source_json: String::new() });
        let kinds = text.into_iter().chain(self.files.into_iter().map(file));
        let kinds = kinds.chain(self.agents.into_iter().map(agent));
        kinds.map(Into::into).collect()
    }
}

/// What a file is by its address: the newer API does not say.
fn mime(uri: &str) -> String {
    let of_data = uri.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
    let mime = of_data.filter(|mime| !mime.is_empty()).or_else(|| media::of_name(uri));
    mime.unwrap_or("text/plain").to_owned()
}

/// Stores a prompt; the same one again gives the same receipt.
pub(in crate::http) async fn admit(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Body(asked): Body<Admitted>,
) -> Result<Json<Value>> {
    let session_id = id(&session)?;
    if asked.delivery == Delivery::Queue {
        let message = "a prompt is seen with the next step of a turn that goes on: only steer is known here";
        return Err(invalid("delivery_unknown", message).into());
    }
    let request = v1::AcceptPromptRequest {
        session_id: session,
        message_id: asked.id.unwrap_or_default(),
        parts: asked.prompt.parts(),
        no_reply: !asked.resume,
        ..Default::default()
    };
    let request = located(&state, &caller, &session_id, request).await?;
    let accepted = grpc::Service(state.clone()).accept_prompt(caller.request(request)).await?.into_inner();
    let message: MessageId = accepted.message_id.parse().map_err(|_| Error::NotFound(Entity::Message))?;
    let entry = state.store.get_message(caller.principal.tenant, &session_id, &message).await?;
    let created = match &entry.message {
        domain::message::Message::User(user) => user.time.created,
        domain::message::Message::Assistant(step) => step.time.created,
    };
    Ok(Json(json!({"data": {
        "admittedSeq": entry.seq, "id": message, "sessionID": session_id, "prompt": shape::prompt(&entry.parts),
        "delivery": "steer", "timeCreated": created,
    }})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Listed {
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

/// Where a page begins.
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
    /// Where the older and the newer messages are, seen from a page that begins here.
    fn around(self, page: &[Said]) -> (Self, Self) {
        match (page, self) {
            ([oldest, .., newest], _) => (Self::Before(oldest.0.seq), Self::After(newest.0.seq)),
            ([only], _) => (Self::Before(only.0.seq), Self::After(only.0.seq)),
            ([], Self::After(seq)) => (Self::Before(seq.saturating_add(1)), self),
            ([], Self::Before(seq)) => (self, Self::After(seq.saturating_sub(1))),
        }
    }
}

impl Cursor {
    fn read(text: &str) -> Result<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let cursor = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        cursor.ok_or_else(|| invalid("cursor_invalid", "the cursor was not given by this list").into())
    }

    fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self).unwrap_or_default())
    }

    /// Whether the page goes on where the list goes on, and not back.
    fn is_forward(self) -> bool {
        matches!((self.order, self.from), (Order::Asc, Side::After(_)) | (Order::Desc, Side::Before(_)))
    }
}

/// One page of what was said.
pub(in crate::http) async fn list(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Query(asked): Query<Listed>,
) -> Result<Json<Value>> {
    let (tenant, session) = (caller.principal.tenant, id(&session)?);
    state.store.get_head(tenant, &session).await?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    let begin = match asked.order {
        Order::Asc => Side::After(0),
        Order::Desc => Side::Before(i64::MAX as u64),
    };
    let given = asked.cursor.as_deref().map(Cursor::read).transpose()?;
    let cursor = given.unwrap_or(Cursor { order: asked.order, from: begin });
    let (said, is_full) = match cursor.from {
        Side::After(seq) => {
            let said = messages::list_after(&state, tenant, &session, (seq, limit)).await?;
            let is_full = said.len() >= limit as usize;
            (said, is_full)
        }
        Side::Before(seq) => {
            let page = Page { limit, cursor: Some(seq.to_string()) };
            let found = messages::list(&state, tenant, &session, (page, false)).await?;
            (found.said, found.next.is_some())
        }
    };
    let (older, newer) = cursor.from.around(&said);
    let (next, previous) = match cursor.order {
        Order::Asc => (newer, older),
        Order::Desc => (older, newer),
    };
    let text = |from: Side| Cursor { order: cursor.order, from }.text();
    let mut links = json!({});
    if is_full || !cursor.is_forward() {
        links["next"] = text(next).into();
    }
    if given.is_some() && (is_full || cursor.is_forward()) {
        links["previous"] = text(previous).into();
    }
    let mut data: Vec<Value> = said.iter().filter_map(|said| shape::message(&said.0)).collect();
    if cursor.order == Order::Desc {
        data.reverse();
    }
    Ok(Json(json!({"data": data, "cursor": links})))
}

pub(in crate::http) async fn get(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<Value>> {
    let (session, missing) = (id(&session)?, || Refused::from(Error::NotFound(Entity::Message)));
    let message: MessageId = message.parse().map_err(|_| missing())?;
    let said = messages::get(&state, caller.principal.tenant, (&session, &message)).await?;
    let data = shape::message(&said.0).ok_or_else(missing)?;
    Ok(Json(json!({"data": data})))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn files_are_what_their_address_says() {
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
    fn cursors_are_read_back() {
        let cursor = Cursor { order: Order::Asc, from: Side::After(7) };
        let read = Cursor::read(&cursor.text()).unwrap();
        assert!(read.is_forward() && matches!(read.from, Side::After(7)));
        assert!(Cursor::read("x").is_err());
    }
}
