//! Who may answer a prompt, or do a task of it. Built-in agents and those that stored settings name are known here; whether a
//! repository has an agent of a name is known when it is opened, so there every possible name is taken.

use crate::{grpc::from_store, state::State};
use domain::{
    agent::{self, Agent, Mode},
    ids::{ProjectId, TenantId},
    limits,
    part::Body,
    session::{Origin, Source},
    text::head,
};
use rpc::status::invalid;
use settings::merge::merge;
use tonic::Status;

/// Where a session works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) project: &'a ProjectId,
    pub(crate) source: &'a Source,
}

/// An agent by name, and what it is wanted for.
pub(crate) type Wanted<'a> = (&'a str, Mode);

/// Whom the parts of a prompt want for tasks.
pub(super) fn of_parts<'a>(bodies: impl Iterator<Item = &'a Body>) -> impl Iterator<Item = Wanted<'a>> {
    bodies.filter_map(|body| match body {
        Body::Agent(agent) => Some((agent.name.as_str(), Mode::Subagent)),
        Body::Subtask(task) => Some((task.agent.as_str(), Mode::Subagent)),
        _ => None,
    })
}

/// Refuses agents that cannot exist in this place, or that are for something else.
///
/// # Errors
/// `agent_unknown`, `store_unavailable`.
pub(crate) async fn check(
    state: &State,
    place: Place<'_>,
    wanted: impl Iterator<Item = Wanted<'_>>,
) -> Result<(), Status> {
    let built_in = |(name, mode): &Wanted<'_>| match (Agent::parse(name), mode) {
        (Some(agent), Mode::Subagent) => Agent::SUBAGENTS.contains(&agent),
        (agent, _) => name.is_empty() || agent.is_some(),
    };
    let others: Vec<Wanted<'_>> = wanted.filter(|wanted| !built_in(wanted)).collect();
    let Some(first) = others.first() else { return Ok(()) };
    if let Some(impossible) = others.iter().find(|(name, _)| Agent::parse(name).is_some() || !is_name(name)) {
        return Err(unknown(*impossible));
    }
    if place.source.origin != Origin::Empty {
        return Ok(());
    }
    let stored = state.store.list_settings(place.tenant, Some(place.project)).await.map_err(from_store)?;
    // Settings that cannot be read end the turn with their own words.
    let merged = state.above(&stored).and_then(|documents| merge(&documents));
    let Ok(merged) = merged else { return Ok(()) };
    let is_known = |(name, _): &&Wanted<'_>| merged.settings.agents.contains_key(*name);
    if others.iter().all(|wanted| is_known(&wanted)) { Ok(()) } else { Err(unknown(*first)) }
}

/// Whether an agent may be called so.
fn is_name(name: &str) -> bool {
    name.len() <= limits::NAME_BYTES_MAX
        && name.chars().all(|c| c.is_alphanumeric() || "-_./ ".contains(c))
        && !agent::is_hidden(name)
}

fn unknown((name, mode): Wanted<'_>) -> Status {
    let (all, what) = match mode {
        Mode::Subagent => (&Agent::SUBAGENTS[..], "subagent"),
        Mode::Primary | Mode::All => (&Agent::ALL[..], "agent"),
    };
    let known: Vec<&str> = all.iter().map(|agent| agent.as_str()).collect();
    let name = head(name, limits::NAME_BYTES_MAX);
    invalid("agent_unknown", format!("there is no {what} {name:?}; there are: {}", known.join(", ")))
}
