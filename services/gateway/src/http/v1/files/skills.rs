//! Skills: the instructions for agents in the repository of the newest session whose files are open.

use crate::{
    app::{files::directory::SkillFile, gateway::Gateway},
    http::{
        callers::caller::Caller,
        refusal::Result,
        v1::files::read::{find_open, of_file},
    },
};
use axum::{Json, extract::State};
use serde_json::{Value, json};

/// The skills with their texts.
pub(in crate::http) async fn list(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let Some(files) = find_open(&gateway, &caller).await? else { return Ok(Json(vec![])) };
    let skills = files.skills().await.map_err(of_file)?;
    Ok(Json(skills.into_iter().map(skill).collect()))
}

fn skill(skill: SkillFile) -> Value {
    let SkillFile { name, description, location, content } = skill;
    json!({"name": name, "description": description, "location": location, "content": content})
}
