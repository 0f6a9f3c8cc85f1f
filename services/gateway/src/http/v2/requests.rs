//! What agents ask people, as the newer API tells it.

use super::{
    super::{caller::Caller, error::Result, input::Body, requests, sessions::id},
    at, shape,
};
use crate::state::State;
use axum::{
    Json,
    extract::{Path, State as Shared},
    http::StatusCode,
};
use domain::limits;
use serde_json::{Value, json};
use store::{
    Page,
    error::{Entity, Error},
    people::requests::RequestScope,
};

const PERMISSION: &str = "per";
const QUESTION: &str = "que";

async fn open(state: &State, caller: &Caller, whose: RequestScope<'_>, prefix: &str) -> Result<Vec<Value>> {
    let page = Page { limit: limits::PAGE_MAX, cursor: None };
    let known = state.store.list_requests(caller.principal.tenant, whose, prefix, &page).await?;
    Ok(known.iter().map(|known| shape::request(&known.request)).collect())
}

async fn of_directory(state: &State, caller: &Caller, prefix: &str) -> Result<Json<Value>> {
    let project = caller.project(state).await?;
    let open = open(state, caller, RequestScope::Project(&project.id), prefix).await?;
    at(state, caller, open).await
}

async fn of_session(state: &State, caller: &Caller, session: &str, prefix: &str) -> Result<Vec<Value>> {
    let session = id(session)?;
    state.store.get_head(caller.principal.tenant, &session).await?;
    open(state, caller, RequestScope::Session(&session), prefix).await
}

pub(in crate::http) async fn permissions(
    Shared(state): Shared<State>,
    caller: Caller,
) -> Result<Json<Value>> {
    of_directory(&state, &caller, PERMISSION).await
}

pub(in crate::http) async fn questions(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    of_directory(&state, &caller, QUESTION).await
}

pub(in crate::http) async fn permissions_of(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    Ok(Json(json!({"data": of_session(&state, &caller, &session, PERMISSION).await?})))
}

pub(in crate::http) async fn questions_of(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    Ok(Json(json!({"data": of_session(&state, &caller, &session, QUESTION).await?})))
}

pub(in crate::http) async fn permission(
    Shared(state): Shared<State>,
    caller: Caller,
    Path((session, request)): Path<(String, String)>,
) -> Result<Json<Value>> {
    let open = of_session(&state, &caller, &session, PERMISSION).await?;
    let asked = open.into_iter().find(|asked| asked["id"] == request.as_str());
    Ok(Json(json!({"data": asked.ok_or(Error::NotFound(Entity::Request))?})))
}

pub(in crate::http) async fn reply_permission(
    state: Shared<State>,
    caller: Caller,
    Path((_, request)): Path<(String, String)>,
    reply: Body<requests::Reply>,
) -> Result<StatusCode> {
    requests::reply_permission(state, caller, Path(request), reply).await.map(|_| StatusCode::NO_CONTENT)
}

pub(in crate::http) async fn reply_question(
    state: Shared<State>,
    caller: Caller,
    Path((_, request)): Path<(String, String)>,
    answers: Body<requests::Answers>,
) -> Result<StatusCode> {
    requests::reply_question(state, caller, Path(request), answers).await.map(|_| StatusCode::NO_CONTENT)
}

pub(in crate::http) async fn reject_question(
    state: Shared<State>,
    caller: Caller,
    Path((_, request)): Path<(String, String)>,
) -> Result<StatusCode> {
    requests::reject_question(state, caller, Path(request)).await.map(|_| StatusCode::NO_CONTENT)
}

/// What was answered "always" for whole projects. What was for the whole tenant is no project's, so it is not shown here.
pub(in crate::http) async fn saved(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let page = Page { limit: limits::PAGE_MAX, cursor: None };
    let approvals = state.store.list_approvals(caller.principal.tenant, &page).await?;
    let shown = approvals.into_iter().filter_map(|it| {
        let project = it.project?;
        Some(json!({"id": it.request, "projectID": project, "action": it.permission, "resource": it.pattern}))
    });
    Ok(Json(json!({"data": shown.collect::<Vec<_>>()})))
}

/// Takes such an answer back; it need not be there.
pub(in crate::http) async fn forget(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(request): Path<String>,
) -> Result<StatusCode> {
    if let Ok(request) = request.parse() {
        state.store.delete_approval(caller.principal.tenant, &request).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
