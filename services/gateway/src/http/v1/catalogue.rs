//! Models, agents, commands and tools. Routes of features that this service does not have answer with an empty list.

use crate::{
    app::{
        catalogue::{self, ServedModel},
        gateway::Gateway,
        settings,
    },
    http::{
        callers::caller::Caller,
        input::extractors::{Body, Query},
        refusal::Result,
    },
};
use ::settings::{Agent as AgentSettings, Settings};
use axum::{Json, extract::State};
use domain::{
    conversation::{
        command::{BUILT_IN, Command, built_in as built_in_command},
        message::ModelRef,
    },
    model::Facts,
    money::Rates,
    policy::{
        agent::{Agent, Mode},
        permission::{Rule, Rules},
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(in crate::http) async fn health(_: Caller) -> Json<Value> {
    Json(json!({"healthy": true, "version": env!("CARGO_PKG_VERSION")}))
}

/// Like [`health`], for the newer API, which reports no version.
pub(in crate::http) async fn is_healthy(_: Caller) -> Json<Value> {
    Json(json!({"healthy": true}))
}

/// The settings that clients read, in OpenCode's shape.
pub(in crate::http) async fn config(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let settings = merged(&gateway, &caller).await?;
    let name = |model: &ModelRef| format!("{}/{}", model.provider_id, model.model_id);
    let served = catalogue::list_models(&gateway, &caller.principal).await?;
    let first = served.first().map(|served| &served.model);
    let model = settings.model.as_ref().or(first).map(name);
    // The TUI then hides its commands for sharing, which is not supported.
    let mut config = json!({"model": model, "share": "disabled"});
    if let (Some(small), Some(config)) = (settings.small_model.as_ref().map(name), config.as_object_mut()) {
        config.insert("small_model".to_owned(), small.into());
    }
    Ok(Json(config))
}

pub(in crate::http) async fn config_providers(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Value>> {
    let Providers { providers, default } = providers_of(&gateway, &caller).await?;
    Ok(Json(json!({"providers": providers, "default": default})))
}

pub(in crate::http) async fn providers(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Value>> {
    let Providers { providers, default } = providers_of(&gateway, &caller).await?;
    let connected: Vec<Value> = providers.iter().map(|provider| provider["id"].clone()).collect();
    Ok(Json(json!({"all": providers, "default": default, "connected": connected})))
}

/// The providers whose models prompts may name, and the first model of each.
pub(in crate::http) struct Providers {
    pub(in crate::http) providers: Vec<Value>,
    default: Map<String, Value>,
}

pub(in crate::http) async fn providers_of(gateway: &Gateway, caller: &Caller) -> Result<Providers> {
    let (mut providers, mut default): (Map<String, Value>, Map<String, Value>) = (Map::new(), Map::new());
    for ServedModel { model, facts } in catalogue::list_models(gateway, &caller.principal).await? {
        let (provider, id) = (&model.provider_id, &model.model_id);
        default.entry(provider).or_insert_with(|| id.as_str().into());
        let entry = providers.entry(provider).or_insert_with(|| {
            json!({"id": provider, "name": provider, "source": "config", "env": [], "options": {}, "models": {}})
        });
        entry["models"][id] = model_json(&model, facts.as_ref());
    }
    Ok(Providers { providers: providers.into_iter().map(|(_, provider)| provider).collect(), default })
}

fn model_json(model: &ModelRef, facts: Option<&Facts>) -> Value {
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

/// Dollars per million tokens.
fn cost(rates: &Rates) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "display only")]
    let dollars = |micros: u64| micros as f64 / 1e6;
    json!({
        "input": dollars(rates.input), "output": dollars(rates.output),
        "cache": {"read": dollars(rates.cache_read), "write": dollars(rates.cache_write)},
    })
}

pub(in crate::http) async fn agents(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let settings = merged(&gateway, &caller).await?;
    let none = AgentSettings::default();
    let built_in = Agent::ALL.into_iter().map(|agent| {
        let mode = if Agent::SUBAGENTS.contains(&agent) { Mode::Subagent } else { Mode::Primary };
        let configured = settings.agents.get(agent.as_str()).unwrap_or(&none);
        let lists = std::iter::once(agent.rules()).chain(settings.rules(agent.as_str()));
        let default =
            AgentDefault { name: agent.as_str(), native: true, description: agent.description(), mode };
        agent_json(default, configured, lists)
    });
    let others = settings.agents.iter().filter(|(name, _)| Agent::parse(name).is_none());
    let others = others.map(|(name, agent)| {
        let mode = agent.mode.unwrap_or(Mode::All);
        let default = AgentDefault { name, native: false, description: "", mode };
        agent_json(default, agent, settings.rules(name).into_iter())
    });
    Ok(Json(built_in.chain(others).flatten().collect()))
}

/// The default values of an agent.
struct AgentDefault<'a> {
    name: &'a str,
    native: bool,
    description: &'a str,
    mode: Mode,
}

/// An agent as clients list it; `None` if it is disabled.
fn agent_json(
    default: AgentDefault<'_>,
    configured: &AgentSettings,
    lists: impl Iterator<Item = Rules>,
) -> Option<Value> {
    if configured.disable == Some(true) {
        return None;
    }
    let rule =
        |rule: Rule| json!({"permission": rule.permission, "pattern": rule.pattern, "action": rule.action});
    let permission: Vec<Value> = lists.flat_map(|rules| rules.0).map(rule).collect();
    // OpenCode puts the keys that it does not know among the options.
    let options = configured.files.map_or_else(|| json!({}), |files| json!({"files": files.as_str()}));
    let mut agent = json!({
        "name": default.name, "description": configured.description.as_deref().unwrap_or(default.description),
        "mode": configured.mode.unwrap_or(default.mode).as_str(), "native": default.native,
        "hidden": configured.hidden.unwrap_or(false), "permission": permission, "options": options,
    });
    if let (Some(model), Some(agent)) = (&configured.model, agent.as_object_mut()) {
        let model = json!({"providerID": model.provider_id, "modelID": model.model_id});
        agent.insert("model".to_owned(), model);
    }
    Some(agent)
}

/// The built-in commands, those of stored settings, and those of the repository once a session has opened it.
pub(in crate::http) async fn commands(
    State(gateway): State<Gateway>,
    caller: Caller,
) -> Result<Json<Vec<Value>>> {
    let settings = merged(&gateway, &caller).await?;
    let built_in = BUILT_IN.into_iter().filter(|name| !settings.commands.contains_key(*name));
    let built_in = built_in.filter_map(|name| Some(command_json(name, &built_in_command(name)?)));
    let stored = settings.commands.iter().map(|(name, command)| command_json(name, command));
    Ok(Json(built_in.chain(stored).collect()))
}

fn command_json(name: &str, command: &Command) -> Value {
    let placeholders = ["$ARGUMENTS", "$1", "$2", "$3"].into_iter();
    let hints: Vec<&str> = placeholders.filter(|it| command.template.contains(it)).collect();
    json!({
        "name": name, "description": command.description.as_deref().unwrap_or_default(), "source": "command",
        "template": command.template, "hints": hints, "subtask": command.subtask.unwrap_or(false),
    })
}

/// The settings of the platform, the tenant, the project, and its repository as far as it is known.
async fn merged(gateway: &Gateway, caller: &Caller) -> Result<Settings> {
    let project = caller.find_project(gateway).await?;
    Ok(settings::with_repository(gateway, &caller.principal, project.as_ref().map(|it| &it.id)).await?)
}

/// The client's directory in its own terms. Tools name files below `/workspace`.
pub(in crate::http) async fn path(State(gateway): State<Gateway>, caller: Caller) -> Result<Json<Value>> {
    let directory = caller.directory(&gateway).await?;
    Ok(Json(json!({"home": "/", "state": "/", "config": "/", "worktree": directory, "directory": directory})))
}

pub(in crate::http) async fn capabilities(_: Caller) -> Json<Value> {
    Json(json!({"backgroundSubagents": false}))
}

pub(in crate::http) async fn console(_: Caller) -> Json<Value> {
    let none: [&str; 0] = [];
    Json(json!({"consoleManagedProviders": none, "switchableOrgCount": 0}))
}

/// The names of the tools, as rules and prompts use them.
pub(in crate::http) async fn tool_names(_: Caller) -> Json<Value> {
    Json(json!(domain::policy::tool::NAMES))
}

/// The model to list tools for. All models get the same tools.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct ModelQuery {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(rename = "model")]
    _model: String,
}

/// The tools as the workers offer them to models. The agent and the rules of a session may allow fewer.
pub(in crate::http) async fn tools(
    State(gateway): State<Gateway>,
    caller: Caller,
    Query(_): Query<ModelQuery>,
) -> Result<Json<Vec<Value>>> {
    let tools = catalogue::list_tools(&gateway, &caller.principal).await?.into_iter();
    let tools = tools
        .map(|tool| json!({"id": tool.name, "description": tool.description, "parameters": tool.schema}));
    Ok(Json(tools.collect()))
}

pub(in crate::http) async fn empty_list(_: Caller) -> Json<Value> {
    Json(json!([]))
}

pub(in crate::http) async fn empty_map(_: Caller) -> Json<Value> {
    Json(json!({}))
}

/// Logs a line of a client.
pub(in crate::http) async fn log(caller: Caller, Body(entry): Body<Value>) -> Json<bool> {
    let text = |key: &str| domain::text::head(entry[key].as_str().unwrap_or_default(), 500).to_owned();
    let key = caller.principal.name();
    tracing::debug!(key, service = text("service"), "client log: {}", text("message"));
    Json(true)
}
