//! What agents ask people, and their answers.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::Body,
};
use crate::{grpc, state::State};
use axum::{
    Json,
    extract::{Path, State as Shared},
};
use rpc::v1::{
    self, permission_service_server::PermissionService as _, question_service_server::QuestionService as _,
};
use serde::Deserialize;
use serde_json::Value;
use store::{Page, people::requests::RequestScope};

pub(super) async fn permissions(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    open(&state, &caller, "per").await
}

pub(super) async fn questions(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    open(&state, &caller, "que").await
}

async fn open(state: &State, caller: &Caller, prefix: &str) -> Result<Json<Vec<Value>>> {
    let Some(project) = caller.find_project(state).await? else { return Ok(Json(vec![])) };
    let page = Page { limit: domain::limits::PAGE_MAX, cursor: None };
    let whose = RequestScope::Project(&project.id);
    let known = state.store.list_requests(caller.principal.tenant, whose, prefix, &page).await?;
    Ok(Json(known.iter().map(|known| known.request.to_json()).collect()))
}

#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    #[serde(alias = "response")]
    reply: String,
    #[serde(default)]
    message: String,
}

pub(super) async fn reply_permission(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(permission_id): Path<String>,
    Body(reply): Body<Reply>,
) -> Result<Json<bool>> {
    let answer = match reply.reply.as_str() {
        "once" => v1::PermissionAnswer::Once,
        "always" => v1::PermissionAnswer::Always,
        "reject" => v1::PermissionAnswer::Reject,
        other => {
            let message = format!("reply: expected once, always or reject, found {other:?}");
            return Err(Refused::Unreadable("Body", message));
        }
    };
    let request = v1::ReplyPermissionRequest {
        permission_id,
        answer: answer.into(),
        message: reply.message,
        ..Default::default()
    };
    grpc::Service(state).reply_permission(caller.request(request)).await?;
    Ok(Json(true))
}

/// As older clients answer.
pub(super) async fn respond_permission(
    state: Shared<State>,
    caller: Caller,
    Path((_, permission)): Path<(String, String)>,
    reply: Body<Reply>,
) -> Result<Json<bool>> {
    reply_permission(state, caller, Path(permission), reply).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Answers {
    answers: Vec<Vec<String>>,
}

pub(super) async fn reply_question(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(question_id): Path<String>,
    Body(said): Body<Answers>,
) -> Result<Json<bool>> {
    let answers = said.answers.into_iter().map(|labels| v1::QuestionAnswer { labels }).collect();
    answer_question(state, &caller, v1::ReplyQuestionRequest { question_id, answers }).await
}

pub(super) async fn reject_question(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(question_id): Path<String>,
) -> Result<Json<bool>> {
    answer_question(state, &caller, v1::ReplyQuestionRequest { question_id, answers: vec![] }).await
}

async fn answer_question(
    state: State,
    caller: &Caller,
    request: v1::ReplyQuestionRequest,
) -> Result<Json<bool>> {
    grpc::Service(state).reply_question(caller.request(request)).await?;
    Ok(Json(true))
}
