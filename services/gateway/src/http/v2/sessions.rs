//! Sessions of the newer API.

use super::{
    super::{
        caller::Caller,
        edits,
        error::{Refused, Result},
        input::{Body, Model, Query},
        prompt,
        sessions::{self, id},
    },
    shape,
};
use crate::{
    events::{From, Wish},
    grpc,
    state::State,
};
use axum::{
    Json,
    extract::{Path, State as Shared},
    http::StatusCode,
};
use domain::{ids::ProjectId, limits, session::Phase};
use rpc::{
    status::invalid,
    v1::{self, prompt_part::Kind, session_service_server::SessionService as _},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use store::{Page, error::Error, log::edits::Edit, session::sessions::Filter};

/// Sessions of a page when the client does not say how many.
const PAGE_DEFAULT: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct New {
    id: String,
    agent: String,
    model: Option<Model>,
    location: Option<Location>,
}

#[derive(Debug, Deserialize)]
struct Location {
    directory: String,
}

/// Makes a session, or gives the one that has the id already.
pub(in crate::http) async fn create(
    Shared(state): Shared<State>,
    mut caller: Caller,
    Body(new): Body<New>,
) -> Result<Json<Value>> {
    if let Some(location) = new.location {
        caller.directory = Some(location.directory);
    }
    let request = v1::CreateSessionRequest {
        project_id: caller.project(&state).await?.id.to_string(),
        agent: new.agent,
        model: new.model.map(Into::into),
        id: new.id,
        ..Default::default()
    };
    let made = grpc::Service(state.clone()).create_session(caller.request(request)).await?.into_inner();
    shown(&state, &caller, &made.session.unwrap_or_default().id).await
}

async fn shown(state: &State, caller: &Caller, session: &str) -> Result<Json<Value>> {
    let session = state.store.get_session(caller.principal.tenant, &id(session)?).await?;
    let directory = sessions::directory(state, caller, &session.info.id).await?;
    Ok(Json(json!({"data": shape::session(&session.info, &directory)})))
}

pub(in crate::http) async fn get(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<Json<Value>> {
    shown(&state, &caller, &session).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Listed {
    limit: Option<u32>,
    order: Option<String>,
    search: Option<String>,
    project: Option<String>,
    cursor: Option<String>,
}

/// The sessions of a directory, of a project, or of everything, last changed first.
pub(in crate::http) async fn list(
    Shared(state): Shared<State>,
    caller: Caller,
    Query(asked): Query<Listed>,
) -> Result<Json<Value>> {
    if asked.order.as_deref().is_some_and(|order| order != "desc") {
        return Err(
            invalid("order_unknown", "sessions are listed last changed first: only desc is known").into()
        );
    }
    let nobody = || Ok(Json(json!({"data": [], "cursor": {}})));
    let project = match (&asked.project, &caller.directory) {
        (Some(project), _) => match project.parse::<ProjectId>() {
            Ok(project) => Some(project),
            Err(_) => return nobody(),
        },
        (None, Some(_)) => match caller.find_project(&state).await? {
            Some(project) => Some(project.id),
            None => return nobody(),
        },
        (None, None) => None,
    };
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    if asked.cursor.as_deref().is_some_and(|cursor| !grpc::session::is_cursor(cursor)) {
        return Err(invalid("cursor_invalid", "the cursor was not given by this list").into());
    }
    let search = asked.search.filter(|search| !search.contains('\0'));
    let (filter, page) =
        (Filter { project, search, ..Filter::default() }, Page { limit, cursor: asked.cursor });
    let tenant = caller.principal.tenant;
    let found = state.store.list_sessions(tenant, &filter, &page).await?;
    let (mut names, mut data): (HashMap<ProjectId, String>, Vec<Value>) = (HashMap::new(), vec![]);
    for session in &found {
        let project = &session.info.project_id;
        if !names.contains_key(project) {
            names.insert(project.clone(), state.store.get_project(tenant, project).await?.name);
        }
        data.push(shape::session(&session.info, names.get(project).map_or("", String::as_str)));
    }
    let mut cursor = json!({});
    if let Some(last) = found.last().filter(|_| found.len() >= limit as usize) {
        cursor["next"] = grpc::session::place(last.info.time.updated, last).into();
    }
    Ok(Json(json!({"data": data, "cursor": cursor})))
}

/// Those that are not idle.
pub(in crate::http) async fn active(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let window = store::log::feed::Window { since: None, limit: limits::PAGE_MAX };
    let active = state.store.list_recent(caller.principal.tenant, None, window).await?;
    let running = active.into_iter().map(|it| (it.session.to_string(), json!({"type": "running"})));
    Ok(Json(json!({"data": running.collect::<Map<_, _>>()})))
}

pub(in crate::http) async fn interrupt(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<StatusCode> {
    let request = v1::AbortSessionRequest { session_id };
    grpc::Service(state).abort_session(caller.request(request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers when the session is idle.
pub(in crate::http) async fn wait(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    let tenant = caller.principal.tenant;
    let session = state.store.get_session(tenant, &id(&session)?).await?;
    match session.phase {
        Phase::Idle => return Ok(StatusCode::NO_CONTENT),
        Phase::Quarantined => return Err(Error::Quarantined.into()),
        Phase::Runnable | Phase::Running | Phase::Waiting => {}
    }
    let from = From::After(session.event_seq);
    let wish = Wish { tenant, session: session.info.id, from, until_idle_after: Some(session.event_seq) };
    prompt::ended(&state, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Has everything so far summed up, and answers then.
pub(in crate::http) async fn compact(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<StatusCode> {
    let parts = vec![Kind::Compaction(v1::CompactionPart {}).into()];
    let request = v1::AcceptPromptRequest { session_id, parts, ..Default::default() };
    prompt::answered(&state, &caller, request).await.map(|_| StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct ToAgent {
    agent: String,
}

/// Chooses the agent of later prompts.
pub(in crate::http) async fn agent(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(ToAgent { agent }): Body<ToAgent>,
) -> Result<StatusCode> {
    change(state, &caller, v1::UpdateSessionRequest { session_id, agent, ..Default::default() }, "agent")
        .await
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct ToModel {
    model: Model,
}

/// Chooses the model of later prompts.
pub(in crate::http) async fn model(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
    Body(ToModel { model }): Body<ToModel>,
) -> Result<StatusCode> {
    let model = Some(model.into());
    change(state, &caller, v1::UpdateSessionRequest { session_id, model, ..Default::default() }, "model")
        .await
}

async fn change(
    state: State,
    caller: &Caller,
    mut request: v1::UpdateSessionRequest,
    path: &str,
) -> Result<StatusCode> {
    request.update_mask.get_or_insert_default().paths = vec![path.to_owned()];
    grpc::Service(state).update_session(caller.request(request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct Stage {
    #[serde(rename = "messageID")]
    message: String,
    files: Option<bool>,
}

/// Takes files and messages back to before a message.
pub(in crate::http) async fn stage(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
    Body(stage): Body<Stage>,
) -> Result<Json<Value>> {
    if stage.files == Some(false) {
        return Err(Refused::from(invalid("files_kept", "files are always taken back with the messages")));
    }
    let request = v1::RevertSessionRequest {
        session_id: session.clone(),
        message_id: stage.message,
        part_id: String::new(),
    };
    grpc::Service(state.clone()).revert_session(caller.request(request)).await?;
    let info = state.store.get_session(caller.principal.tenant, &id(&session)?).await?.info;
    Ok(Json(json!({"data": info.revert})))
}

/// Brings back what was taken back.
pub(in crate::http) async fn clear(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session_id): Path<String>,
) -> Result<StatusCode> {
    let request = v1::UnrevertSessionRequest { session_id };
    grpc::Service(state).unrevert_session(caller.request(request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes what was taken back.
pub(in crate::http) async fn commit(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(session): Path<String>,
) -> Result<StatusCode> {
    edits::edit(&state, &caller, &session, &Edit::CommitRevert).await?;
    Ok(StatusCode::NO_CONTENT)
}
