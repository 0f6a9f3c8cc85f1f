//! Messages: prompts in every manner, and what was said.
// Continues in `intake`, by way of `grpc::prompt`.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::{self, Body, Model, Part, Prompt, Query},
    sessions::{self, id},
    shape,
};
use crate::{
    events::{self, From, Wish},
    grpc, messages,
    state::State,
};
use axum::{
    Json,
    extract::{Path, State as Shared},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{
    event::QUARANTINED,
    ids::{MessageId, SessionId},
    limits,
    session::WORKSPACE,
};
use rpc::{
    status::invalid,
    v1::{self, prompt_part::Kind, prompt_service_server::PromptService as _, subscribe_response::Item},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use store::Page;

/// Time between the end of a turn and the answer to OpenCode's own programs: `run --attach` prints what events tell it, on another
/// connection, and leaves when the answer comes, printed or not.
const EVENTS_FIRST: Duration = Duration::from_millis(500);

/// Holds the request until the turn is over, and gives its last answer. Whoever leaves stops nothing.
pub(super) async fn send(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Body(prompt): Body<Prompt>,
) -> Result<Json<Value>> {
    answered(&state, &caller, prompt.accept(session)).await
}

/// Answers when the prompt is stored.
pub(super) async fn send_async(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Body(prompt): Body<Prompt>,
) -> Result<StatusCode> {
    let session_id = id(&session)?;
    let request = located(&state, &caller, &session_id, prompt.accept(session)).await?;
    grpc::Service(state).accept_prompt(caller.request(request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Command {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    variant: String,
    command: String,
    arguments: String,
    #[serde(default)]
    parts: Vec<Part>,
}

pub(super) async fn command(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(asked): Body<Command>,
) -> Result<Json<Value>> {
    let named = v1::CommandPart { name: asked.command, arguments: asked.arguments };
    let named = Kind::Command(named).into();
    let request = v1::AcceptPromptRequest {
        session_id,
        agent: asked.agent,
        model: asked.model.as_deref().and_then(input::model),
        variant: asked.variant,
        parts: std::iter::once(named).chain(asked.parts.into_iter().map(Into::into)).collect(),
        message_id: asked.message_id,
        ..Default::default()
    };
    answered(&state, &caller, request).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Shell {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    model: Option<Model>,
    command: String,
}

pub(super) async fn shell(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(asked): Body<Shell>,
) -> Result<Json<Value>> {
    let request = v1::AcceptPromptRequest {
        session_id,
        agent: asked.agent,
        model: asked.model.map(Into::into),
        parts: vec![Kind::Shell(v1::ShellPart { command: asked.command }).into()],
        message_id: asked.message_id,
        ..Default::default()
    };
    answered(&state, &caller, request).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Init {
    #[serde(default, rename = "messageID")]
    message_id: String,
    #[serde(flatten)]
    model: Model,
}

/// The command `init`, as its own route.
pub(super) async fn init(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(asked): Body<Init>,
) -> Result<Json<bool>> {
    let named = v1::CommandPart { name: "init".to_owned(), arguments: String::new() };
    let request = v1::AcceptPromptRequest {
        session_id,
        model: Some(asked.model.into()),
        parts: vec![Kind::Command(named).into()],
        message_id: asked.message_id,
        ..Default::default()
    };
    answered(&state, &caller, request).await.map(|_| Json(true))
}

#[derive(Debug, Deserialize)]
pub(super) struct Summarize {
    #[serde(flatten)]
    model: Model,
}

/// Sums up everything so far.
pub(super) async fn summarize(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(asked): Body<Summarize>,
) -> Result<Json<bool>> {
    let request = v1::AcceptPromptRequest {
        session_id,
        model: Some(asked.model.into()),
        parts: vec![Kind::Compaction(v1::CompactionPart {}).into()],
        ..Default::default()
    };
    answered(&state, &caller, request).await.map(|_| Json(true))
}

/// The prompt with files where they are here: a client names them below the directory by which it knows the project.
pub(super) async fn located(
    state: &State,
    caller: &Caller,
    session: &SessionId,
    mut request: v1::AcceptPromptRequest,
) -> Result<v1::AcceptPromptRequest> {
    let is_elsewhere =
        |url: &str| url.strip_prefix("file://").is_some_and(|path| !path.starts_with(WORKSPACE));
    let is_file =
        |part: &v1::PromptPart| matches!(&part.kind, Some(Kind::File(file)) if is_elsewhere(&file.url));
    if !request.parts.iter().any(is_file) {
        return Ok(request);
    }
    let directory = sessions::directory(state, caller, session).await?;
    for part in &mut request.parts {
        let Some(Kind::File(file)) = &mut part.kind else { continue };
        let inside = file.url.strip_prefix("file://").and_then(|path| path.strip_prefix(directory.as_str()));
        if let Some(rest) = inside.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            file.url = format!("file://{WORKSPACE}{rest}");
        }
    }
    Ok(request)
}

/// Accepts a prompt and waits for the end of its turn.
pub(super) async fn answered(
    state: &State,
    caller: &Caller,
    request: v1::AcceptPromptRequest,
) -> Result<Json<Value>> {
    let (session, no_reply) = (id(&request.session_id)?, request.no_reply);
    let request = located(state, caller, &session, request).await?;
    let accepted = grpc::Service(state.clone()).accept_prompt(caller.request(request)).await?.into_inner();
    let tenant = caller.principal.tenant;
    let message: MessageId = accepted
        .message_id
        .parse()
        .map_err(|_| store::error::Error::NotFound(store::error::Entity::Message))?;
    if no_reply {
        return Ok(Json(shape::said(&messages::get(state, tenant, (&session, &message)).await?)));
    }
    let wish = Wish {
        tenant,
        session: session.clone(),
        from: From::After(accepted.event_seq.saturating_sub(1)),
        until_idle_after: Some(accepted.event_seq),
    };
    ended(state, wish).await?;
    if caller.is_opencode {
        tokio::time::sleep(EVENTS_FIRST).await;
    }
    let answer = messages::answer(state, tenant, (&session, &message)).await?;
    Ok(Json(shape::said(&answer.ok_or(store::error::Error::NotFound(store::error::Entity::Message))?)))
}

/// Waits for the end of a turn.
pub(super) async fn ended(state: &State, wish: Wish) -> Result<()> {
    let mut news = events::subscribe(state, wish).await?;
    while let Some(news) = news.recv().await {
        match news?.item {
            Some(Item::Event(event)) if event.kind == QUARANTINED => {
                return Err(store::error::Error::Quarantined.into());
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Listed {
    limit: Option<u32>,
    before: Option<String>,
}

/// The newest messages, or those before a cursor; without a limit as many as one answer holds.
pub(super) async fn list(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Query(asked): Query<Listed>,
    uri: Uri,
) -> Result<Response> {
    let session = id(&session)?;
    let cursor = asked.before.as_deref().map(cursor).transpose()?;
    let wanted = asked.limit.filter(|limit| *limit > 0);
    let page = Page { limit: wanted.unwrap_or(limits::PAGE_MAX).min(limits::PAGE_MAX), cursor };
    let tenant = caller.principal.tenant;
    state.store.get_head(tenant, &session).await?;
    let found = messages::list(&state, tenant, &session, (page, wanted.is_none())).await?;
    let headers = found.next.map(|next| next_page(&uri, &next)).unwrap_or_default();
    let said: Vec<Value> = found.said.iter().map(shape::said).collect();
    Ok((headers, Json(said)).into_response())
}

pub(super) async fn get(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<Value>> {
    let message =
        message.parse().map_err(|_| store::error::Error::NotFound(store::error::Entity::Message))?;
    let session: SessionId = id(&session)?;
    Ok(Json(shape::said(&messages::get(&state, caller.principal.tenant, (&session, &message)).await?)))
}

/// Where the page before this one is.
fn next_page(uri: &Uri, next: &str) -> HeaderMap {
    let cursor = URL_SAFE_NO_PAD.encode(json!({"seq": next}).to_string());
    let others = uri.query().unwrap_or_default().split('&');
    let others = others.filter(|pair| !pair.is_empty() && !pair.starts_with("before="));
    let query: Vec<String> = others.map(str::to_owned).chain([format!("before={cursor}")]).collect();
    let link = format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"));
    let header = |text: &str| HeaderValue::from_str(text).ok();
    let named =
        [(header::LINK, header(&link)), (header::HeaderName::from_static("x-next-cursor"), header(&cursor))];
    named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Reads a cursor of [`next_page`].
fn cursor(text: &str) -> Result<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let json = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let seq = json
        .as_ref()
        .and_then(|json| json["seq"].as_str())
        .filter(|seq| seq.parse::<i64>().is_ok_and(|seq| seq >= 0));
    let wrong = || Refused::from(invalid("cursor_invalid", "the cursor was not given by this list"));
    seq.map(str::to_owned).ok_or_else(wrong)
}
