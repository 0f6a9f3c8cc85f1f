//! Requests to people in the newer API.

use super::{location, shape};
use crate::{
    app::{
        gateway::Gateway,
        page::PageRequest,
        requests::{self as open_requests, RequestFilter, RequestKind},
    },
    errors::{entity::Entity, error::Error},
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Body, Path},
            ids::session_id,
        },
        refusal::Result,
        v1::requests,
    },
};
use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

async fn list(
    gateway: &Gateway,
    caller: &Caller,
    kind: RequestKind,
    scope: &RequestFilter,
) -> Result<Vec<Value>> {
    let page = PageRequest::FIRST;
    let list = open_requests::list_open(gateway, &caller.principal, kind, scope, page).await?;
    Ok(list.entries.iter().map(|record| shape::request(&record.request)).collect())
}

async fn of_directory(gateway: &Gateway, caller: &Caller, kind: RequestKind) -> Result<Json<Value>> {
    let open = match caller.find_directory(gateway).await? {
        Some(directory) => list(gateway, caller, kind, &RequestFilter::Area(directory.area())).await?,
        None => vec![],
    };
    location::list(gateway, caller, open).await
}

async fn of_session(
    gateway: &Gateway,
    caller: &Caller,
    kind: RequestKind,
    session: &str,
) -> Result<Vec<Value>> {
    list(gateway, caller, kind, &RequestFilter::Session(session_id(session)?)).await
}

/// The open permissions of the directory.
pub(in crate::http) async fn permissions(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Value>> {
    of_directory(&gateway, &caller, RequestKind::Permission).await
}

/// The open questions of the directory.
pub(in crate::http) async fn questions(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Value>> {
    of_directory(&gateway, &caller, RequestKind::Question).await
}

/// The open permissions of a session.
pub(in crate::http) async fn permissions_of(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    Ok(Json(json!({"data": of_session(&gateway, &caller, RequestKind::Permission, &session).await?})))
}

/// The open questions of a session.
pub(in crate::http) async fn questions_of(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    Ok(Json(json!({"data": of_session(&gateway, &caller, RequestKind::Question, &session).await?})))
}

/// One open permission of a session.
pub(in crate::http) async fn permission(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path((session, request)): Path<(String, String)>,
) -> Result<Json<Value>> {
    let open = of_session(&gateway, &caller, RequestKind::Permission, &session).await?;
    let found = open.into_iter().find(|open| open["id"] == request.as_str());
    Ok(Json(json!({"data": found.ok_or(Error::NotFound(Entity::Other("permission request")))?})))
}

pub(in crate::http) async fn reply_permission(
    gateway: State<Gateway>,
    caller: Caller,
    Path((session, request)): Path<(String, String)>,
    body: Body<requests::PermissionReply>,
) -> Result<StatusCode> {
    requests::check_permission(&gateway, &caller, &session, &request).await?;
    requests::reply_permission(gateway, caller, Path(request), body).await.map(|_| StatusCode::NO_CONTENT)
}

pub(in crate::http) async fn reply_question(
    gateway: State<Gateway>,
    caller: Caller,
    Path((session, request)): Path<(String, String)>,
    body: Body<requests::QuestionReply>,
) -> Result<StatusCode> {
    requests::check_question(&gateway, &caller, &session, &request).await?;
    requests::reply_question(gateway, caller, Path(request), body).await.map(|_| StatusCode::NO_CONTENT)
}

/// Refuses to answer a question.
pub(in crate::http) async fn reject_question(
    gateway: State<Gateway>,
    caller: Caller,
    Path((session, request)): Path<(String, String)>,
) -> Result<StatusCode> {
    requests::check_question(&gateway, &caller, &session, &request).await?;
    requests::reject_question(gateway, caller, Path(request)).await.map(|_| StatusCode::NO_CONTENT)
}

/// The "always" answers for whole projects. Those for the whole tenant belong to no project, so they are left out.
pub(in crate::http) async fn saved(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let list = open_requests::list_approvals(&gateway, &caller.principal, PageRequest::FIRST).await?;
    let approvals = list.entries.into_iter().filter_map(|it| {
        let project = it.project?;
        Some(json!({"id": it.request, "projectID": project, "action": it.permission, "resource": it.pattern}))
    });
    Ok(Json(json!({"data": approvals.collect::<Vec<_>>()})))
}

/// Revokes an "always" answer. An unknown answer counts as revoked.
pub(in crate::http) async fn forget(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(request): Path<String>,
) -> Result<StatusCode> {
    let Ok(request) = request.parse() else { return Ok(StatusCode::NO_CONTENT) };
    match open_requests::delete_approval(&gateway, &caller.principal, &request).await {
        Ok(()) | Err(Error::NotFound(Entity::Approval)) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}
