//! What there is: models, agents, commands, tools. And what is not: routes whose feature does not exist here answer what
//! clients take for "none".

use super::{
    caller::Caller,
    error::Result,
    input::{Body, Query},
};
use crate::state::State;
use axum::{Json, extract::State as Shared};
use domain::{
    agent::{Agent, Mode},
    command::{BUILT_IN, Command, built_in as built_in_command},
    message::ModelRef,
    model::Facts,
    money::Rates,
    permission::{Rule, Rules},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use settings::{Settings, merge::merge};

pub(super) async fn health(_: Caller) -> Json<Value> {
    Json(json!({"healthy": true, "version": env!("CARGO_PKG_VERSION")}))
}

/// As [`health`], for clients of the newer API, which knows no version.
pub(super) async fn is_healthy(_: Caller) -> Json<Value> {
    Json(json!({"healthy": true}))
}

/// Settings in OpenCode's shape that clients look at.
pub(super) async fn config(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Value>> {
    let settings = settings(&state, &caller).await?;
    let name = |model: &ModelRef| format!("{}/{}", model.provider_id, model.model_id);
    let model = settings.model.as_ref().or_else(|| state.models.first()).map(name);
    let mut config = json!({"model": model});
    if let (Some(small), Some(config)) = (settings.small_model.as_ref().map(name), config.as_object_mut()) {
        config.insert("small_model".to_owned(), small.into());
    }
    Ok(Json(config))
}

pub(super) async fn config_providers(Shared(state): Shared<State>, _: Caller) -> Result<Json<Value>> {
    let (providers, default) = served(&state).await?;
    Ok(Json(json!({"providers": providers, "default": default})))
}

pub(super) async fn providers(Shared(state): Shared<State>, _: Caller) -> Result<Json<Value>> {
    let (providers, default) = served(&state).await?;
    let connected: Vec<Value> = providers.iter().map(|provider| provider["id"].clone()).collect();
    Ok(Json(json!({"all": providers, "default": default, "connected": connected})))
}

/// The providers whose models prompts may name, and the first model of each. What is known of them, workers told.
pub(super) async fn served(state: &State) -> Result<(Vec<Value>, Map<String, Value>)> {
    let facts = state.store.list_models().await?;
    let (mut providers, mut default): (Map<String, Value>, Map<String, Value>) = (Map::new(), Map::new());
    for model in state.models.iter() {
        let (provider, id) = (&model.provider_id, &model.model_id);
        default.entry(provider).or_insert_with(|| id.as_str().into());
        let known = providers.entry(provider).or_insert_with(|| {
            json!({"id": provider, "name": provider, "source": "config", "env": [], "options": {}, "models": {}})
        });
        let facts = facts.iter().find(|facts| &facts.model == model);
        known["models"][id] = described(model, facts);
    }
    Ok((providers.into_iter().map(|(_, provider)| provider).collect(), default))
}

fn described(model: &ModelRef, facts: Option<&Facts>) -> Value {
    let (provider, id) = (&model.provider_id, &model.model_id);
    let takes = |images: bool, pdf: bool| json!({"text": true, "audio": false, "image": images, "video": false, "pdf": pdf});
    let is = |fact: fn(&Facts) -> bool| facts.is_some_and(fact);
    let (images, pdf) = (is(|facts| facts.images), is(|facts| facts.pdf));
    let mut limit = json!({
        "context": facts.map_or(0, |facts| facts.context_tokens), "output": facts.map_or(0, |facts| facts.output_tokens),
    });
    if let Some(input) = facts.and_then(|facts| facts.input_tokens) {
        limit["input"] = input.into();
    }
    let variants =
        facts.map(|facts| facts.variants.iter().map(|name| (name.clone(), json!({}))).collect::<Map<_, _>>());
    json!({
        "id": id, "providerID": provider, "name": facts.map_or(id, |facts| &facts.name),
        "api": {"id": id, "url": "", "npm": ""},
        "capabilities": {
            "temperature": is(|facts| facts.temperature), "reasoning": is(|facts| facts.reasoning),
            "attachment": images || pdf, "toolcall": true, "input": takes(images, pdf), "output": takes(false, false),
            "interleaved": false,
        },
        "cost": cost(&facts.map(|facts| facts.price.base).unwrap_or_default()),
        "limit": limit, "status": "active", "options": {}, "headers": {}, "release_date": "",
        "variants": variants.unwrap_or_default(),
    })
}

/// Dollars for a million tokens.
fn cost(rates: &Rates) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "display only")]
    let dollars = |micros: u64| micros as f64 / 1e6;
    json!({
        "input": dollars(rates.input), "output": dollars(rates.output),
        "cache": {"read": dollars(rates.cache_read), "write": dollars(rates.cache_write)},
    })
}

pub(super) async fn agents(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let settings = settings(&state, &caller).await?;
    let none = settings::Agent::default();
    let built_in = Agent::ALL.into_iter().map(|agent| {
        let mode = if Agent::SUBAGENTS.contains(&agent) { Mode::Subagent } else { Mode::Primary };
        let configured = settings.agents.get(agent.as_str()).unwrap_or(&none);
        let lists = std::iter::once(agent.rules()).chain(settings.rules(agent.as_str()));
        agent_json((agent.as_str(), true, agent.description(), mode), configured, lists)
    });
    let others = settings.agents.iter().filter(|(name, _)| Agent::parse(name).is_none());
    let others = others.map(|(name, agent)| {
        let mode = agent.mode.unwrap_or(Mode::All);
        agent_json((name, false, "", mode), agent, settings.rules(name).into_iter())
    });
    Ok(Json(built_in.chain(others).flatten().collect()))
}

/// An agent as clients list it; none that is switched off.
fn agent_json(
    (name, native, description, mode): (&str, bool, &str, Mode),
    configured: &settings::Agent,
    lists: impl Iterator<Item = Rules>,
) -> Option<Value> {
    if configured.disable == Some(true) {
        return None;
    }
    let rule =
        |rule: Rule| json!({"permission": rule.permission, "pattern": rule.pattern, "action": rule.action});
    let permission: Vec<Value> = lists.flat_map(|rules| rules.0).map(rule).collect();
    let mut agent = json!({
        "name": name, "description": configured.description.as_deref().unwrap_or(description),
        "mode": configured.mode.unwrap_or(mode).as_str(), "native": native,
        "hidden": configured.hidden.unwrap_or(false), "permission": permission, "options": {},
    });
    if let (Some(model), Some(agent)) = (&configured.model, agent.as_object_mut()) {
        let model = json!({"providerID": model.provider_id, "modelID": model.model_id});
        agent.insert("model".to_owned(), model);
    }
    Some(agent)
}

/// Commands that every session has, and those of stored settings. Those of a repository are known once it is open.
pub(super) async fn commands(Shared(state): Shared<State>, caller: Caller) -> Result<Json<Vec<Value>>> {
    let settings = settings(&state, &caller).await?;
    let built_in = BUILT_IN.into_iter().filter(|name| !settings.commands.contains_key(*name));
    let built_in = built_in.filter_map(|name| Some(command_json(name, &built_in_command(name)?)));
    let stored = settings.commands.iter().map(|(name, command)| command_json(name, command));
    Ok(Json(built_in.chain(stored).collect()))
}

fn command_json(name: &str, command: &Command) -> Value {
    let places = ["$ARGUMENTS", "$1", "$2", "$3"].into_iter();
    let hints: Vec<&str> = places.filter(|place| command.template.contains(place)).collect();
    json!({
        "name": name, "description": command.description.as_deref().unwrap_or_default(), "source": "command",
        "template": command.template, "hints": hints, "subtask": command.subtask.unwrap_or(false),
    })
}

/// What the platform, the tenant and the project settle.
async fn settings(state: &State, caller: &Caller) -> Result<Settings> {
    let project = caller.find_project(state).await?;
    let stored =
        state.store.list_settings(caller.principal.tenant, project.as_ref().map(|it| &it.id)).await?;
    let merged = state.above(&stored).and_then(|documents| merge(&documents));
    Ok(merged.map(|merged| merged.settings).unwrap_or_default())
}

/// Where the client is, in its own words. Tools name files below `/workspace`.
pub(super) async fn path(caller: Caller) -> Result<Json<Value>> {
    let directory = caller.project_name()?;
    Ok(Json(json!({"home": "/", "state": "/", "config": "/", "worktree": directory, "directory": directory})))
}

pub(super) async fn capabilities(_: Caller) -> Json<Value> {
    Json(json!({"backgroundSubagents": false}))
}

pub(super) async fn console(_: Caller) -> Json<Value> {
    let none: [&str; 0] = [];
    Json(json!({"consoleManagedProviders": none, "switchableOrgCount": 0}))
}

/// The names by which rules and prompts know tools.
pub(super) async fn tool_names(_: Caller) -> Json<Value> {
    Json(json!(domain::tool::NAMES))
}

/// For whom tools are listed. All models are told the same ones.
#[derive(Debug, Deserialize)]
pub(super) struct Asking {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(rename = "model")]
    _model: String,
}

/// The tools as models are told of them, which workers tell. A session may have fewer, by its agent and its rules.
pub(super) async fn tools(
    Shared(state): Shared<State>,
    _: Caller,
    Query(_): Query<Asking>,
) -> Result<Json<Vec<Value>>> {
    let tools = state.store.list_tools().await?.into_iter();
    let tools = tools
        .map(|tool| json!({"id": tool.name, "description": tool.description, "parameters": tool.schema}));
    Ok(Json(tools.collect()))
}

/// There are none.
pub(super) async fn nothing(_: Caller) -> Json<Value> {
    Json(json!([]))
}

/// There are none, by name.
pub(super) async fn nothing_by_name(_: Caller) -> Json<Value> {
    Json(json!({}))
}

/// What a client writes into its server's log.
pub(super) async fn log(caller: Caller, Body(entry): Body<Value>) -> Json<bool> {
    let text = |key: &str| domain::text::head(entry[key].as_str().unwrap_or_default(), 500).to_owned();
    tracing::debug!(tenant.id = %caller.principal.tenant, service = text("service"), "a client says: {}", text("message"));
    Json(true)
}
