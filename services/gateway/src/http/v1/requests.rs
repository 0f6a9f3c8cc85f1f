//! Requests to people: permissions and questions, and the answers.

use crate::{
    app::{
        gateway::Gateway,
        page::PageRequest,
        requests::{self, RequestFilter, RequestKind},
    },
    errors::{entity::Entity, error::Error},
    http::{
        callers::caller::Caller,
        input::extractors::{Body, Path},
        refusal::{RequestPart, Result},
    },
};
use axum::{Json, extract::State};
use domain::{
    conversation::request::{Answer, Id},
    ids::SessionId,
    policy::permission::Scope,
};
use serde::Deserialize;
use serde_json::Value;

/// The open permissions of the directory.
pub(in crate::http) async fn permissions(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    list(&gateway, &caller, RequestKind::Permission).await
}

/// The open questions of the directory.
pub(in crate::http) async fn questions(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    list(&gateway, &caller, RequestKind::Question).await
}

async fn list(gateway: &Gateway, caller: &Caller, kind: RequestKind) -> Result<Json<Vec<Value>>> {
    let Some(directory) = caller.find_directory(gateway).await? else { return Ok(Json(vec![])) };
    let scope = RequestFilter::Area(directory.area());
    let list = requests::list_open(gateway, &caller.principal, kind, &scope, PageRequest::FIRST).await?;
    Ok(Json(list.entries.iter().map(|record| record.request.to_json()).collect()))
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct PermissionReply {
    #[serde(alias = "response")]
    reply: String,
    #[serde(default)]
    message: String,
}

pub(in crate::http) async fn reply_permission(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(permission): Path<String>,
    Body(body): Body<PermissionReply>,
) -> Result<Json<bool>> {
    let answer = match body.reply.as_str() {
        "once" => Answer::Once,
        "always" => Answer::Always { scope: Scope::Session },
        "reject" => requests::rejection(&body.message)?,
        other => {
            let message = format!("reply: expected once, always or reject, found {other:?}");
            return Err(RequestPart::Body.unreadable(message));
        }
    };
    let id = permission_id(&permission)?;
    requests::answer(&gateway, &caller.principal, &id, &answer).await?;
    Ok(Json(true))
}

/// Answers a permission at the path that older clients use.
pub(in crate::http) async fn respond_permission(
    gateway: State<Gateway>,
    caller: Caller,
    Path((session, permission)): Path<(String, String)>,
    body: Body<PermissionReply>,
) -> Result<Json<bool>> {
    check_permission(&gateway, &caller, &session, &permission).await?;
    reply_permission(gateway, caller, Path(permission), body).await
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct QuestionReply {
    answers: Vec<Vec<String>>,
}

pub(in crate::http) async fn reply_question(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(question): Path<String>,
    Body(body): Body<QuestionReply>,
) -> Result<Json<bool>> {
    answer_question(&gateway, &caller, &question, &body.answers).await
}

/// Refuses to answer a question.
pub(in crate::http) async fn reject_question(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(question): Path<String>,
) -> Result<Json<bool>> {
    answer_question(&gateway, &caller, &question, &[]).await
}

async fn answer_question(
    gateway: &Gateway,
    caller: &Caller,
    question: &str,
    answers: &[Vec<String>],
) -> Result<Json<bool>> {
    let id = question_id(question)?;
    requests::answer(gateway, &caller.principal, &id, &requests::labels(answers)?).await?;
    Ok(Json(true))
}

/// Refuses a permission that a path names below a session to which it does not belong.
pub(in crate::http) async fn check_permission(
    gateway: &Gateway,
    caller: &Caller,
    session: &str,
    permission: &str,
) -> Result<()> {
    check_session(gateway, caller, session, &permission_id(permission)?).await
}

/// Refuses a question that a path names below a session to which it does not belong.
pub(in crate::http) async fn check_question(
    gateway: &Gateway,
    caller: &Caller,
    session: &str,
    question: &str,
) -> Result<()> {
    check_session(gateway, caller, session, &question_id(question)?).await
}

async fn check_session(gateway: &Gateway, caller: &Caller, session: &str, id: &Id) -> Result<()> {
    // A malformed id is the id of no session.
    let session = session.parse::<SessionId>().map_err(|_| Error::NotFound(requests::entity(id)))?;
    Ok(requests::check_session(gateway, &caller.principal, &session, id).await?)
}

fn permission_id(text: &str) -> Result<Id> {
    text.parse().map(Id::Permission).map_err(|_| Error::NotFound(Entity::Permission).into())
}

fn question_id(text: &str) -> Result<Id> {
    text.parse().map(Id::Question).map_err(|_| Error::NotFound(Entity::Question).into())
}
