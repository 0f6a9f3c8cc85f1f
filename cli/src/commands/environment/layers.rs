//! `flotilla env ls`, `flotilla env log` and `flotilla env rm`: what the setups and installs of projects made on the sandbox machine.

use crate::{
    client::{Client, call},
    commands::project,
    exit::coded,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, harmless, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::Result;
use rpc::v1::{
    Environment, EnvironmentStage, EnvironmentState, ErrorCode, GetEnvironmentLogRequest,
    GetEnvironmentLogResponse, ListEnvironmentsRequest, Project, RemoveEnvironmentRequest,
};
use serde_json::{Value, json};

/// Characters of a whole key.
const KEY_CHARS: usize = 64;
/// Characters of the name of a project in the table.
const NAME_CHARS: usize = 40;

pub(super) async fn list(client: &Client, output: &Output, named: Option<String>) -> Result<()> {
    let project_id = match &named {
        None => String::new(),
        Some(named) => project::find(client, named).await?.id,
    };
    let request = ListEnvironmentsRequest { project_id };
    let environments = list_all(client, &request).await?;
    let needs_names = !output.is_json() && !environments.is_empty();
    let projects = if needs_names { project::list_all(client).await? } else { vec![] };
    let none = "no environments; a `setup` or an `install` in the settings or in .flotilla/config.yaml makes one when a session needs it";
    output.list(
        &environments,
        &ListText { to_json, table: &|environments, paint| table(environments, &projects, paint), none },
    )
}

pub(super) async fn list_all(client: &Client, request: &ListEnvironmentsRequest) -> Result<Vec<Environment>> {
    let list = async || client.environments().list_environments(request.clone()).await;
    Ok(call("list the environments", list).await?.environments)
}

/// Finds the key of an environment by its first digits, as the table shows them.
async fn find_key(client: &Client, beginning: &str) -> Result<String> {
    let beginning = beginning.trim_end_matches('…');
    if beginning.len() == KEY_CHARS {
        return Ok(beginning.to_owned());
    }
    let mut keys: Vec<String> = list_all(client, &ListEnvironmentsRequest::default())
        .await?
        .into_iter()
        .map(|environment| environment.key)
        .filter(|key| !beginning.is_empty() && key.starts_with(beginning))
        .collect();
    match keys.pop() {
        Some(key) if keys.is_empty() => Ok(key),
        Some(_) => {
            let message =
                format!("several environments have a key that begins with {beginning}; name more digits");
            Err(coded("environment_ambiguous", message))
        }
        None => {
            let message = format!(
                "no environment has a key that begins with {beginning:?}; `flotilla env ls` lists them"
            );
            Err(coded(ErrorCode::EnvironmentUnknown, message))
        }
    }
}

pub(super) async fn remove(client: &Client, output: &Output, beginning: &str) -> Result<()> {
    let key = find_key(client, beginning).await?;
    let request = RemoveEnvironmentRequest { key: key.clone() };
    let remove = async || client.environments().remove_environment(request.clone()).await;
    call("remove the environment", remove).await?;
    let object = json!({"type": "environment_removal", "key": key, "is_removed": true});
    output.result(&format!("{key} is removed"), &object)
}

pub(super) async fn get_log(client: &Client, key: String) -> Result<GetEnvironmentLogResponse> {
    let request = GetEnvironmentLogRequest { key };
    let get = async || client.environments().get_environment_log(request.clone()).await;
    call("read the log", get).await
}

pub(super) async fn log(client: &Client, output: &Output, beginning: &str) -> Result<()> {
    let answer = get_log(client, find_key(client, beginning).await?).await?;
    let environment = answer.environment.unwrap_or_default();
    let text = String::from_utf8_lossy(&answer.log);
    if output.is_json() {
        let object = json!({
            "type": "environment_log", "key": environment.key, "state": state(&environment), "code": optional(&environment.code),
            "text": text,
        });
        return output.json(&object);
    }
    output.page(&harmless(&text))?;
    if !environment.message.is_empty() {
        // The last lines are a part of the log already.
        output.note(&format!("{} ({})", one_line(&environment.message, 200), environment.code));
    }
    Ok(())
}

fn table(environments: &[Environment], projects: &[Project], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let age = |at_ms| show::age_at(now_ms, at_ms);
    let mut table = Table::new([
        ("PROJECT", Side::Left),
        ("STAGE", Side::Left),
        ("STATE", Side::Left),
        ("BUILT", Side::Right),
        ("SECONDS", Side::Right),
        ("USED", Side::Right),
        ("BYTES", Side::Right),
        ("KEY", Side::Left),
    ]);
    for environment in environments {
        let project = projects.iter().find(|project| project.id == environment.project_id);
        let project = project.map_or(environment.project_id.as_str(), |project| project.name.as_str());
        let end_ms = if environment.ended_at_ms == 0 { now_ms } else { environment.ended_at_ms };
        let state = state(environment);
        table.push([
            one_line(project, NAME_CHARS),
            stage(environment).to_owned(),
            if environment.code.is_empty() {
                state.to_owned()
            } else {
                one_line(&environment.code, NAME_CHARS)
            },
            age(environment.started_at_ms),
            (end_ms.saturating_sub(environment.started_at_ms) / 1_000).to_string(),
            age(environment.used_at_ms),
            environment.size_bytes.to_string(),
            environment.key.clone(),
        ]);
    }
    table.text(paint)
}

pub(super) fn state(environment: &Environment) -> &'static str {
    match environment.state() {
        EnvironmentState::Unspecified => "unknown",
        EnvironmentState::Building => "building",
        EnvironmentState::Ready => "ready",
        EnvironmentState::Failed => "failed",
        EnvironmentState::Removed => "removed",
    }
}

pub(super) fn stage(environment: &Environment) -> &'static str {
    match environment.stage() {
        EnvironmentStage::Unspecified => "unknown",
        EnvironmentStage::Setup => "setup",
        EnvironmentStage::Install => "install",
    }
}

fn optional(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

pub(super) fn to_json(environment: &Environment) -> Value {
    let time = |at_ms: i64| (at_ms != 0).then_some(at_ms);
    json!({
        "type": "environment", "key": environment.key, "project_id": environment.project_id, "stage": stage(environment),
        "state": state(environment),
        "code": optional(&environment.code), "message": optional(&environment.message), "size_bytes": environment.size_bytes,
        "started_at_ms": environment.started_at_ms, "ended_at_ms": time(environment.ended_at_ms), "used_at_ms": time(environment.used_at_ms),
    })
}
