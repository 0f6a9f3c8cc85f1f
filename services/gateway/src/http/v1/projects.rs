//! Projects as directories. Their display settings can be changed; their name cannot, because it is their key.

use crate::{
    app::{
        gateway::Gateway,
        page::PageRequest,
        projects::{
            manage::{self, DISPLAY_BYTES_MAX, ProjectDirectory},
            place,
        },
    },
    directory_project,
    http::{
        callers::caller::Caller,
        input::{
            extractors::{Body, Path},
            ids::project_id,
        },
        refusal::{RequestPart, Result},
    },
    scope::Scope,
    streams::notices::project_json,
};
use axum::{Json, extract::State, http::StatusCode};
use domain::{ids::ProjectId, project::ProjectDisplay};
use serde_json::{Value, json};
use store::tenant::projects::Project;

/// The id of the project of a directory, also before it has one.
pub(in crate::http) async fn id_of_directory(gateway: &Gateway, caller: &Caller) -> Result<ProjectId> {
    Ok(match caller.find_project(gateway).await? {
        Some(project) => project.id,
        None => future_id(gateway, caller).await?,
    })
}

/// The id that the project of a directory will have.
async fn future_id(gateway: &Gateway, caller: &Caller) -> Result<ProjectId> {
    let tenant = caller.principal.tenant(Scope::Read)?;
    Ok(directory_project::id_of(tenant, caller.directory(gateway).await?))
}

/// The project of the directory.
pub(in crate::http) async fn current(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let none: [&str; 0] = [];
    Ok(Json(match caller.find_directory(&gateway).await? {
        Some(ProjectDirectory { project, worktree }) => {
            let mut json = project_json(&project);
            // The directory of the project, under the name that the client uses.
            if worktree.is_none() {
                json["worktree"] = caller.directory(&gateway).await?.into();
            }
            json
        }
        None => json!({
            "id": future_id(&gateway, &caller).await?, "worktree": caller.directory(&gateway).await?, "time": {"created": 0, "updated": 0},
            "sandboxes": none,
        }),
    }))
}

/// The project of the directory, created if there is none.
pub(in crate::http) async fn open(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    Ok(Json(project_json(&caller.open_project(&gateway).await?.project)))
}

pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let projects = manage::list(&gateway, &caller.principal, PageRequest::FIRST).await?;
    Ok(Json(projects.entries.iter().map(|project| for_client(&caller, project)).collect()))
}

/// A project in the form that the client knows. A page that opened the folder `/NAME` goes on with the name, because the folder is listed as a further
/// directory of the project: events and sessions have the name.
fn for_client(caller: &Caller, project: &Project) -> Value {
    let mut json = project_json(project);
    let folder = place::listed(&project.name);
    if let Some(directories) = json["sandboxes"].as_array_mut()
        && caller.is_page
        && folder != project.name
    {
        directories.push(folder.into());
    }
    json
}

/// Updates the display settings of a project.
pub(in crate::http) async fn update(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(id): Path<String>,
    Body(change): Body<ProjectDisplay>,
) -> Result<Json<Value>> {
    if json!(change).to_string().contains("\\u0000") {
        return Err(RequestPart::Body.unreadable("name, icon and commands must not contain zero bytes"));
    }
    if change == ProjectDisplay::default() {
        return Ok(Json(project_json(&get(&gateway, &caller, &id).await?)));
    }
    let project = manage::update_display(&gateway, &caller.principal, &project_id(&id)?, &change).await?;
    let too_large = || {
        let message = format!("name, icon and commands must have at most {DISPLAY_BYTES_MAX} bytes together");
        RequestPart::Body.unreadable(message)
    };
    Ok(Json(project_json(&project.ok_or_else(too_large)?)))
}

/// The directories of a project: its own, then those of its worktrees.
pub(in crate::http) async fn directories(
    State(gateway): State<Gateway>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let (own, worktrees) = match caller.find_directory(&gateway).await? {
        Some(ProjectDirectory { project, worktree: None }) if project.id.as_str() == id => {
            (caller.directory(&gateway).await?.to_owned(), project.worktrees)
        }
        None if future_id(&gateway, &caller).await?.as_str() == id => {
            (caller.directory(&gateway).await?.to_owned(), vec![])
        }
        Some(_) | None => {
            let project = get(&gateway, &caller, &id).await?;
            (project.name, project.worktrees)
        }
    };
    let directories = std::iter::once(own).chain(worktrees);
    Ok(Json(directories.map(|directory| json!({"directory": directory})).collect()))
}

/// Reads the directories of a project again. They are read at each call.
pub(in crate::http) async fn refresh_directories(
    gateway: State<Gateway>,
    caller: Caller,
    id: Path<String>,
) -> Result<StatusCode> {
    directories(gateway, caller, id).await.map(|_| StatusCode::NO_CONTENT)
}

async fn get(gateway: &Gateway, caller: &Caller, id: &str) -> Result<Project> {
    Ok(manage::get(gateway, &caller.principal, &project_id(id)?).await?)
}
