//! Sessions: made, listed, changed, taken back, forked, deleted.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::{Body, Model, Query},
    shape,
};
use crate::{grpc, state::State};
use axum::{
    Json,
    extract::{Path, State as Shared},
};
use domain::ids::{SessionId, Timestamp};
use rpc::v1::{self, session_service_server::SessionService as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::{Page, session::sessions::Filter};

/// Sessions of a list without a limit, as in OpenCode.
const LIST_DEFAULT: u32 = 100;

/// The session that a path names.
pub(super) fn id(text: &str) -> Result<SessionId> {
    text.parse().map_err(|_| store::error::Error::NotFound(store::error::Entity::Session).into())
}

/// The name by which clients know the project of a session.
pub(super) async fn directory(state: &State, caller: &Caller, session: &SessionId) -> Result<String> {
    let tenant = caller.principal.tenant;
    let project = state.store.get_session(tenant, session).await?.info.project_id;
    Ok(state.store.get_project(tenant, &project).await?.name)
}

/// A session as clients see it.
async fn shown(state: &State, caller: &Caller, text: &str) -> Result<Json<Value>> {
    let tenant = caller.principal.tenant;
    let info = state.store.get_session(tenant, &id(text)?).await?.info;
    let project = state.store.get_project(tenant, &info.project_id).await?;
    Ok(Json(shape::session(&info, &project.name)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Listed {
    roots: Option<String>,
    start: Option<i64>,
    search: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Listed>,
) -> Result<Json<Vec<Value>>> {
    let Some(project) = caller.find_project(&state).await? else { return Ok(Json(vec![])) };
    let (directory, project) = (project.name, Some(project.id));
    let filter = Filter {
        project,
        only_roots: asked.roots.is_some_and(|roots| roots == "true"),
        search: asked.search.filter(|search| !search.contains('\0')),
        since: asked.start.map(Timestamp),
        ..Filter::default()
    };
    let limit = asked.limit.unwrap_or(LIST_DEFAULT).min(domain::limits::PAGE_MAX);
    let page = Page { limit, cursor: None };
    let sessions = state.store.list_sessions(caller.principal.tenant, &filter, &page).await?;
    Ok(Json(sessions.iter().map(|session| shape::session(&session.info, &directory)).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct New {
    title: Option<String>,
    agent: Option<String>,
    model: Option<Model>,
    permission: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    permission: String,
    pattern: String,
    action: String,
}

pub(super) async fn create(
    Shared(state): Shared<State>,
    caller: Caller,
    Body(new): Body<New>,
) -> Result<Json<Value>> {
    let project = caller.project(&state).await?;
    let rule = |rule: Rule| {
        let verdict = match rule.action.as_str() {
            "allow" => v1::PermissionVerdict::Allow,
            "ask" => v1::PermissionVerdict::Ask,
            "deny" => v1::PermissionVerdict::Deny,
            other => {
                let message = format!("permission: expected allow, ask or deny, found {other:?}");
                return Err(Refused::Unreadable("Body", message));
            }
        };
        Ok(v1::PermissionRule { permission: rule.permission, pattern: rule.pattern, verdict: verdict.into() })
    };
    let request = v1::CreateSessionRequest {
        project_id: project.id.to_string(),
        title: new.title.unwrap_or_default(),
        agent: new.agent.unwrap_or_default(),
        model: new.model.map(Into::into),
        permission_rules: new.permission.into_iter().map(rule).collect::<Result<_>>()?,
        ..Default::default()
    };
    let made = grpc::Service(state.clone()).create_session(caller.request(request)).await?.into_inner();
    shown(&state, &caller, &made.session.unwrap_or_default().id).await
}

pub(super) async fn get(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    shown(&state, &caller, &session).await
}

/// Of every session that works or tries again. Those that wait for somebody work, as far as a client is concerned.
pub(super) async fn status(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Map<String, Value>>> {
    let Some(project) = caller.find_project(&state).await? else { return Ok(Json(Map::new())) };
    let only_active = store::log::feed::Window { since: None, limit: domain::limits::PAGE_MAX };
    let active = state.store.list_recent(caller.principal.tenant, Some(&project.id), only_active).await?;
    Ok(Json(active.into_iter().map(|it| (it.session.to_string(), json!({"type": "busy"}))).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Changed {
    title: Option<String>,
    time: ChangedTime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChangedTime {
    archived: Option<f64>,
}

pub(super) async fn update(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Body(changed): Body<Changed>,
) -> Result<Json<Value>> {
    let title = changed.title.is_some().then(|| "title".to_owned());
    let archived = changed.time.archived.is_some().then(|| "archived".to_owned());
    let paths: Vec<String> = title.into_iter().chain(archived).collect();
    if !paths.is_empty() {
        let mut request = v1::UpdateSessionRequest {
            session_id: session.clone(),
            title: changed.title.unwrap_or_default(),
            archived: changed.time.archived.is_some_and(|at| at > 0.0),
            ..Default::default()
        };
        request.update_mask.get_or_insert_default().paths = paths;
        grpc::Service(state.clone()).update_session(caller.request(request)).await?;
    }
    shown(&state, &caller, &session).await
}

pub(super) async fn delete(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<Json<bool>> {
    let request = v1::DeleteSessionRequest { session_id };
    grpc::Service(state).delete_session(caller.request(request)).await?;
    Ok(Json(true))
}

pub(super) async fn children(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Vec<Value>>> {
    let (tenant, parent) = (caller.principal.tenant, id(&session)?);
    let directory = directory(&state, &caller, &parent).await?;
    let page = Page { limit: domain::limits::PAGE_MAX, cursor: None };
    let children = state.store.list_children(tenant, &parent, &page).await?;
    Ok(Json(children.iter().map(|child| shape::session(&child.info, &directory)).collect()))
}

pub(super) async fn todo(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    let todos = state.store.get_todos(caller.principal.tenant, &id(&session)?).await?;
    Ok(Json(if todos.is_null() { json!([]) } else { todos }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DiffOf {
    #[serde(rename = "messageID")]
    message: Option<String>,
}

/// What a prompt's turn changed; without a message nothing, as in OpenCode.
pub(super) async fn diff(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Query(of): Query<DiffOf>,
) -> Result<Json<Value>> {
    let (tenant, session) = (caller.principal.tenant, id(&session)?);
    let Some(message) = of.message.filter(|message| !message.is_empty()) else {
        state.store.get_head(tenant, &session).await?;
        return Ok(Json(json!([])));
    };
    let message =
        message.parse().map_err(|_| store::error::Error::NotFound(store::error::Entity::Message))?;
    let entry = state.store.get_message(tenant, &session, &message).await?;
    let info = serde_json::to_value(&entry.message).unwrap_or_default();
    Ok(Json(info["summary"]["diffs"].as_array().cloned().unwrap_or_default().into()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Point {
    #[serde(rename = "messageID")]
    message: Option<String>,
    #[serde(rename = "partID")]
    part: Option<String>,
}

pub(super) async fn fork(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(point): Body<Point>,
) -> Result<Json<Value>> {
    let message_id = point.message.unwrap_or_default();
    let request = v1::ForkSessionRequest { session_id, message_id, ..Default::default() };
    let forked = grpc::Service(state.clone()).fork_session(caller.request(request)).await?.into_inner();
    shown(&state, &caller, &forked.session.unwrap_or_default().id).await
}

/// Answers true for any id, as OpenCode does: whoever aborts wants nothing to run.
pub(super) async fn abort(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<Json<bool>> {
    let request = v1::AbortSessionRequest { session_id };
    match grpc::Service(state).abort_session(caller.request(request)).await {
        Ok(_) => Ok(Json(true)),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(Json(true)),
        Err(status) => Err(status.into()),
    }
}

pub(super) async fn revert(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(point): Body<Point>,
) -> Result<Json<Value>> {
    let missing = || Refused::Unreadable("Body", "messageID is missing".to_owned());
    let (message_id, part_id) = (point.message.ok_or_else(missing)?, point.part.unwrap_or_default());
    let request = v1::RevertSessionRequest { session_id: session_id.clone(), message_id, part_id };
    grpc::Service(state.clone()).revert_session(caller.request(request)).await?;
    shown(&state, &caller, &session_id).await
}

pub(super) async fn unrevert(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<Json<Value>> {
    let request = v1::UnrevertSessionRequest { session_id: session_id.clone() };
    grpc::Service(state.clone()).unrevert_session(caller.request(request)).await?;
    shown(&state, &caller, &session_id).await
}
