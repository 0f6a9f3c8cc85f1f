//! The calls that clients make at their start: the project of the directory, and the same agents, commands and models
//! as in `v1`.

use crate::{
    app::gateway::Gateway,
    errors::{entity::Entity, error::Error},
    http::{
        callers::caller::Caller,
        input::extractors::Path,
        refusal::Result,
        v1::{catalogue, files::skills as v1_skills, projects::id_of_directory},
    },
};
use axum::{Json, extract::State};
use serde_json::{Map, Value, json};

/// The project of the directory.
pub(in crate::http) async fn get(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    location(&gateway, &caller).await.map(Json)
}

pub(in crate::http) async fn agents(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let agent = |agent: &Value| {
        let rules = agent["permission"].as_array().into_iter().flatten();
        let rule = |rule: &Value| json!({"action": rule["permission"], "resource": rule["pattern"], "effect": rule["action"]});
        let permissions: Vec<Value> = rules.map(rule).collect();
        json!({
            "id": agent["name"], "request": {"headers": {}, "body": {}}, "description": agent["description"],
            "mode": agent["mode"], "hidden": agent["hidden"], "permissions": permissions,
        })
    };
    let agents = catalogue::agents(gateway.clone(), caller.clone()).await?.0;
    list(&gateway, &caller, agents.iter().map(agent).collect()).await
}

pub(in crate::http) async fn commands(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let command = |command: &Value| {
        let keys = ["name", "template", "description", "subtask"];
        let members = keys.into_iter().filter_map(|key| Some((key.to_owned(), command.get(key)?.clone())));
        Value::Object(members.collect())
    };
    let commands = catalogue::commands(gateway.clone(), caller.clone()).await?.0;
    list(&gateway, &caller, commands.iter().map(command).collect()).await
}

pub(in crate::http) async fn providers(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let providers = catalogue::providers_of(&gateway, &caller).await?.providers;
    list(&gateway, &caller, providers.iter().map(provider_info).collect()).await
}

pub(in crate::http) async fn provider(
    gateway: State<Gateway>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>> {
    let providers = catalogue::providers_of(&gateway, &caller).await?.providers;
    let provider = providers.iter().find(|provider| provider["id"] == id.as_str());
    let provider = provider.ok_or(Error::NotFound(Entity::Provider))?;
    one(&gateway, &caller, provider_info(provider)).await
}

fn provider_info(provider: &Value) -> Value {
    json!({
        "id": provider["id"], "name": provider["name"], "api": {"type": "native", "settings": {}},
        "request": {"headers": {}, "body": {}},
    })
}

pub(in crate::http) async fn models(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let providers = catalogue::providers_of(&gateway, &caller).await?.providers;
    let models = providers.iter().filter_map(|provider| provider["models"].as_object()).flat_map(Map::values);
    list(&gateway, &caller, models.map(model).collect()).await
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

pub(in crate::http) async fn skills(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let skills = v1_skills::list(gateway.clone(), caller.clone()).await?.0;
    list(&gateway, &caller, skills).await
}

pub(in crate::http) async fn empty_list(gateway: State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    list(&gateway, &caller, vec![]).await
}

/// A list in the caller's directory.
pub(super) async fn list(gateway: &Gateway, caller: &Caller, data: Vec<Value>) -> Result<Json<Value>> {
    one(gateway, caller, data.into()).await
}

/// One object in the caller's directory.
pub(super) async fn one(gateway: &Gateway, caller: &Caller, data: Value) -> Result<Json<Value>> {
    Ok(Json(json!({"location": location(gateway, caller).await?, "data": data})))
}

async fn location(gateway: &Gateway, caller: &Caller) -> Result<Value> {
    let directory = caller.directory(gateway).await?;
    let project = id_of_directory(gateway, caller).await?;
    Ok(json!({"directory": directory, "project": {"id": project, "directory": directory}}))
}
