//! Projects, as directories of clients: how they are shown people may choose, what they are called nobody, for it is their key.

use super::{
    caller::Caller,
    error::{Refused, Result},
    input::Body,
};
use crate::{notices::project_json, state::State};
use axum::{
    Json,
    extract::{Path, State as Shared},
};
use domain::{ids::ProjectId, limits, project::ProjectDisplay};
use serde_json::{Value, json};
use store::tenant::projects::Project;

/// Bytes of what people choose for one project, as JSON: mostly a picture. Each list of projects has it.
const SHOWN_BYTES_MAX: usize = 32 * 1024;

/// The one of the directory.
pub(super) async fn current(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    Ok(Json(project_json(&caller.project(&state).await?)))
}

pub(super) async fn list(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let page = store::Page { limit: limits::PAGE_MAX, cursor: None };
    let projects = state.store.list_projects(caller.principal.tenant, &page).await?;
    Ok(Json(projects.iter().map(project_json).collect()))
}

/// Changes how a project is shown.
pub(super) async fn update(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(id): Path<String>,
    Body(shown): Body<ProjectDisplay>,
) -> Result<Json<Value>> {
    if json!(shown).to_string().contains("\\u0000") {
        return Err(Refused::Unreadable("Body", "name, icon and commands have no zero bytes".to_owned()));
    }
    if shown == ProjectDisplay::default() {
        return Ok(Json(project_json(&named(&state, &caller, &id).await?)));
    }
    let (tenant, id) = (caller.principal.tenant, project_id(&id)?);
    let fitting = |was: &ProjectDisplay| {
        Some(was.changed(&shown)).filter(|shown| json!(shown).to_string().len() <= SHOWN_BYTES_MAX)
    };
    let too_large = || {
        let message = format!("name, icon and commands have at most {SHOWN_BYTES_MAX} bytes together");
        Refused::Unreadable("Body", message)
    };
    let project = state.store.update_project(tenant, &id, fitting).await?.ok_or_else(too_large)?;
    state.tell_project(tenant, &project);
    Ok(Json(project_json(&project)))
}

pub(super) async fn directories(
    Shared(state): Shared<State>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    Ok(Json(json!([{"directory": named(&state, &caller, &id).await?.name}])))
}

/// The project of an id.
async fn named(state: &State, caller: &Caller, id: &str) -> Result<Project> {
    Ok(state.store.get_project(caller.principal.tenant, &project_id(id)?).await?)
}

fn project_id(text: &str) -> Result<ProjectId> {
    text.parse().map_err(|_| store::error::Error::NotFound(store::error::Entity::Project).into())
}
