//! Sessions of the newer API.

use super::shape;
use crate::{
    app::{
        gateway::Gateway,
        history::{
            edits,
            revert::{self, RevertPoint},
        },
        page::{List, PageRequest},
        prompts::turn,
        sessions::{
            abort,
            change::{self, SessionChange},
            create::{self, SessionRequest},
            read::{self, SessionView},
        },
    },
    errors::invalid::Invalid,
    http::{
        callers::{caller::Caller, directory::with_note},
        input::{
            extractors::{Body, Path, Query},
            ids::{message_id, session_id},
            prompt::Model,
        },
        refusal::Result,
        v1::messages,
    },
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use domain::{
    ids::{ProjectId, SessionId},
    limits,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::{log::edits::Edit, session::sessions::Filter, tenant::worktrees::SessionArea};

/// Sessions of a page if the client sets no limit.
const PAGE_DEFAULT: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct CreateBody {
    id: String,
    agent: String,
    model: Option<Model>,
    location: Option<Location>,
}

#[derive(Debug, Deserialize)]
struct Location {
    directory: String,
}

/// Creates a session, or returns the one with this id.
pub(in crate::http) async fn create(
    State(gateway): State<Gateway>,
    mut caller: Caller,
    Body(body): Body<CreateBody>,
) -> Result<Response> {
    if let Some(location) = body.location {
        caller.directory = Some(location.directory);
    }
    let opened = caller.open_project(&gateway).await?;
    let request = SessionRequest {
        agent: body.agent,
        variant: body.model.as_ref().map(|model| model.variant().to_owned()).unwrap_or_default(),
        model: body.model.and_then(Model::chosen),
        id: body.id,
        worktree: opened.worktree,
        ..SessionRequest::of(opened.project.id)
    };
    let session = create::create(&gateway, &caller.principal, request).await?;
    let id = &session.info.id;
    let view = caller.visiting(&gateway, id, show(&gateway, &caller, id)).await?;
    Ok((with_note(opened.note.as_deref()), view).into_response())
}

async fn show(gateway: &Gateway, caller: &Caller, session: &SessionId) -> Result<Json<Value>> {
    let session = read::get(gateway, &caller.principal, session).await?;
    Ok(Json(json!({"data": shape::session(&session.info, &session.directory)})))
}

pub(in crate::http) async fn get(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    show(&gateway, &caller, &session_id(&session)?).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    limit: Option<u32>,
    order: Option<String>,
    search: Option<String>,
    project: Option<String>,
    cursor: Option<String>,
}

/// The sessions of a directory, of a project, or all, last changed first.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>> {
    if query.order.as_deref().is_some_and(|order| order != "desc") {
        let message = "sessions are listed last changed first; the only order is desc";
        return Err(Invalid::OrderUnknown.because(message).into());
    }
    let empty = || Ok(Json(json!({"data": [], "cursor": {}})));
    let area = match (&query.project, &caller.directory) {
        (Some(project), _) => match project.parse::<ProjectId>() {
            Ok(project) => Some(SessionArea::from(project)),
            Err(_) => return empty(),
        },
        (None, Some(_)) => match caller.find_directory(&gateway).await? {
            Some(directory) => Some(directory.area()),
            None => return empty(),
        },
        (None, None) => None,
    };
    let limit = Some(query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX));
    let search = query.search.filter(|search| !search.contains('\0'));
    let filter = Filter { area, search, ..Filter::default() };
    let page = PageRequest { limit, cursor: query.cursor };
    let List { entries, next } = read::list(&gateway, &caller.principal, &filter, page).await?;
    let to_json =
        |SessionView { session, .. }: &SessionView| shape::session(&session.info, &session.directory);
    let data: Vec<Value> = entries.iter().map(to_json).collect();
    let cursor = next.map_or_else(|| json!({}), |next| json!({"next": next}));
    Ok(Json(json!({"data": data, "cursor": cursor})))
}

/// The sessions that are not idle.
pub(in crate::http) async fn active(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let active = read::list_active(&gateway, &caller.principal, None).await?;
    let running = active.into_iter().map(|it| (it.session.to_string(), json!({"type": "running"})));
    Ok(Json(json!({"data": running.collect::<Map<_, _>>()})))
}

/// Aborts the turn and its subtasks.
pub(in crate::http) async fn interrupt(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    abort::abort(&gateway, &caller.principal, &session_id(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Responds when the session is idle.
pub(in crate::http) async fn wait(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    turn::wait(&gateway, &caller.principal, &session_id(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Compacts the session, and responds when that is done.
pub(in crate::http) async fn compact(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    messages::compact(&gateway, &caller, &session, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct AgentBody {
    agent: String,
}

/// Sets the agent of later prompts.
pub(in crate::http) async fn agent(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(AgentBody { agent }): Body<AgentBody>,
) -> Result<StatusCode> {
    let change = SessionChange { agent: Some(agent), ..SessionChange::default() };
    update(&gateway, &caller, &session, change).await
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct ModelBody {
    model: Model,
}

/// Sets the model of later prompts.
pub(in crate::http) async fn model(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(ModelBody { model }): Body<ModelBody>,
) -> Result<StatusCode> {
    let change = SessionChange { model: model.chosen(), ..SessionChange::default() };
    update(&gateway, &caller, &session, change).await
}

async fn update(
    gateway: &Gateway,
    caller: &Caller,
    session: &str,
    change: SessionChange,
) -> Result<StatusCode> {
    change::update(gateway, &caller.principal, &session_id(session)?, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct StageBody {
    #[serde(rename = "messageID")]
    message: String,
    files: Option<bool>,
}

/// Reverts files and messages to before a message.
pub(in crate::http) async fn stage(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
    Body(body): Body<StageBody>,
) -> Result<Json<Value>> {
    if body.files == Some(false) {
        let message = "files are always reverted together with the messages";
        return Err(Invalid::FilesKept.because(message).into());
    }
    let session = session_id(&session)?;
    let point = RevertPoint { message: message_id(&body.message)?, part: None };
    revert::revert(&gateway, &caller.principal, &session, point).await?;
    let info = read::get(&gateway, &caller.principal, &session).await?.info;
    Ok(Json(json!({"data": info.revert})))
}

pub(in crate::http) async fn clear(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    revert::unrevert(&gateway, &caller.principal, &session_id(&session)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes the reverted messages now.
pub(in crate::http) async fn commit(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    edits::edit(&gateway, &caller.principal, &session_id(&session)?, &Edit::CommitRevert).await?;
    Ok(StatusCode::NO_CONTENT)
}
