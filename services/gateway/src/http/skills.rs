//! Skills: what the repository of the newest session teaches agents.

use super::{
    caller::Caller,
    error::Result,
    files::{found, reader},
};
use crate::state::State;
use axum::{Json, extract::State as Shared};
use domain::session::WORKSPACE;
use futures::{StreamExt as _, stream};
use rpc::v1;
use serde_json::{Value, json};

/// Bytes of a skill that are given.
const SKILL_BYTES_MAX: u32 = 64 * 1024;
/// Skills that are read at a time.
const READ_AT_ONCE: usize = 4;

pub(super) async fn list(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let Some(fence) = reader(&state, &caller).await? else { return Ok(Json(vec![])) };
    let request = v1::ReadGuidanceRequest { fence: Some(fence.clone()), ..Default::default() };
    let guidance = found(state.sandbox.clone().read_guidance(request).await)?;
    let shown = stream::iter(guidance.skills).map(|skill| shown(&state, &fence, skill));
    Ok(Json(shown.buffered(READ_AT_ONCE).filter_map(std::future::ready).collect().await))
}

/// A skill with its text; none that cannot be read.
async fn shown(state: &State, fence: &v1::Fence, skill: v1::Skill) -> Option<Value> {
    let location = format!("{WORKSPACE}/{}", skill.path);
    let request = v1::ReadFileRequest {
        fence: Some(fence.clone()),
        path: location.clone(),
        bytes_max: SKILL_BYTES_MAX,
        ..Default::default()
    };
    let file = state.sandbox.clone().read_file(request).await.ok()?.into_inner();
    let content = String::from_utf8_lossy(&file.data).into_owned();
    Some(json!({
        "name": skill.name, "description": skill.description, "location": location, "content": content,
    }))
}
