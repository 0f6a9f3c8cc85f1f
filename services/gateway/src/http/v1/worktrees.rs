//! Worktrees of the project of a directory.

use crate::{
    app::{
        gateway::Gateway,
        projects::worktrees::{self, WorktreeRequest},
    },
    http::{callers::caller::Caller, input::extractors::Body, refusal::Result},
};
use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use store::tenant::worktrees::Worktree;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct CreateBody {
    name: String,
    #[serde(rename = "startCommand")]
    start_command: String,
}

#[derive(Debug, Deserialize)]
pub(in crate::http) struct DirectoryBody {
    directory: String,
}

/// The directories of the worktrees.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<String>>> {
    Ok(Json(caller.find_project(&gateway).await?.map(|project| project.worktrees).unwrap_or_default()))
}

pub(in crate::http) async fn create(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(CreateBody { name, start_command }): Body<CreateBody>,
) -> Result<Json<Value>> {
    let request = WorktreeRequest { name, start_command };
    let project =
        worktrees::get_project(&gateway, &caller.principal, caller.directory(&gateway).await?).await?;
    let created = worktrees::create(&gateway, &caller.principal, &project, &request).await?;
    let Worktree { name, branch, directory, .. } = created;
    Ok(Json(json!({"name": name, "branch": branch, "directory": directory})))
}

pub(in crate::http) async fn remove(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(DirectoryBody { directory }): Body<DirectoryBody>,
) -> Result<Json<bool>> {
    let project =
        worktrees::get_project(&gateway, &caller.principal, caller.directory(&gateway).await?).await?;
    worktrees::remove(&gateway, &caller.principal, &project, &directory).await?;
    Ok(Json(true))
}

/// Lets a worktree begin anew.
pub(in crate::http) async fn reset(
    State(gateway): State<Gateway>,
    caller: Caller,
    Body(DirectoryBody { directory }): Body<DirectoryBody>,
) -> Result<Json<bool>> {
    let project =
        worktrees::get_project(&gateway, &caller.principal, caller.directory(&gateway).await?).await?;
    worktrees::reset(&gateway, &caller.principal, &project, &directory).await?;
    Ok(Json(true))
}
