//! What clients of OpenCode's newer API ask when they start: the same agents, commands and models in its other shapes.

pub(super) mod events;
pub(super) mod messages;
pub(super) mod requests;
pub(super) mod sessions;
mod shape;

use super::{caller::Caller, catalogue, error::Result, skills};
use crate::state::State;
use axum::{Json, extract::State as Shared};
use serde_json::{Map, Value, json};

pub(super) async fn location(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    place(&state, &caller).await.map(Json)
}

pub(super) async fn agents(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let agent = |agent: &Value| {
        let rules = agent["permission"].as_array().into_iter().flatten();
        let rule = |rule: &Value| json!({"action": rule["permission"], "resource": rule["pattern"], "effect": rule["action"]});
        let permissions: Vec<Value> = rules.map(rule).collect();
        json!({
            "id": agent["name"], "request": {"headers": {}, "body": {}}, "description": agent["description"],
            "mode": agent["mode"], "hidden": agent["hidden"], "permissions": permissions,
        })
    };
    let known = catalogue::agents(Shared(state.0.clone()), caller.clone()).await?.0;
    at(&state, &caller, known.iter().map(agent).collect()).await
}

pub(super) async fn commands(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let command = |command: &Value| {
        let kept = ["name", "template", "description", "subtask"];
        let members = kept.into_iter().filter_map(|key| Some((key.to_owned(), command.get(key)?.clone())));
        Value::Object(members.collect())
    };
    let known = catalogue::commands(Shared(state.0.clone()), caller.clone()).await?.0;
    at(&state, &caller, known.iter().map(command).collect()).await
}

pub(super) async fn providers(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let provider = |provider: &Value| {
        json!({
            "id": provider["id"], "name": provider["name"], "api": {"type": "native", "settings": {}},
            "request": {"headers": {}, "body": {}},
        })
    };
    let known = catalogue::served(&state).await?.0;
    at(&state, &caller, known.iter().map(provider).collect()).await
}

pub(super) async fn models(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let known = catalogue::served(&state).await?.0;
    let models = known.iter().filter_map(|provider| provider["models"].as_object()).flat_map(Map::values);
    at(&state, &caller, models.map(model).collect()).await
}

fn model(model: &Value) -> Value {
    let takes = |side: &str| -> Vec<String> {
        let kinds = model["capabilities"][side].as_object().into_iter().flatten();
        kinds.filter(|(_, takes)| **takes == Value::Bool(true)).map(|(kind, _)| kind.clone()).collect()
    };
    let variants = model["variants"].as_object().into_iter().flat_map(Map::keys);
    let variants: Vec<Value> = variants.map(|id| json!({"id": id, "headers": {}, "body": {}})).collect();
    json!({
        "id": model["id"], "providerID": model["providerID"], "name": model["name"],
        "api": {"id": model["id"], "type": "native", "settings": {}},
        "capabilities": {"tools": true, "input": takes("input"), "output": takes("output")},
        "request": {"headers": {}, "body": {}}, "variants": variants, "time": {"released": 0},
        "cost": [model["cost"]], "status": "active", "enabled": true, "limit": model["limit"],
    })
}

pub(super) async fn skills(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let known = skills::list(Shared(state.0.clone()), caller.clone()).await?.0;
    at(&state, &caller, known).await
}

/// There are none.
pub(super) async fn nothing(state: Shared<State>, caller: Caller) -> Result<Json<Value>> {
    at(&state, &caller, vec![]).await
}

async fn at(state: &State, caller: &Caller, data: Vec<Value>) -> Result<Json<Value>> {
    Ok(Json(json!({"location": place(state, caller).await?, "data": data})))
}

async fn place(state: &State, caller: &Caller) -> Result<Value> {
    let project = caller.project(state).await?;
    Ok(json!({"directory": project.name, "project": {"id": project.id, "directory": project.name}}))
}
