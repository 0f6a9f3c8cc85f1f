//! Checks the agents that a prompt or a session names. The gateway knows the built-in agents and those of stored settings. Only the
//! worker knows the agents of a repository, so for a session with a repository every possible name passes.

use crate::ground::{error::Error, invalid::Invalid, state::State};
use domain::{
    conversation::part::Body,
    ids::{ProjectId, TenantId},
    limits,
    policy::agent::{self, Agent, Mode},
    session::{Origin, Source},
    text::head,
};
use settings::merge::merge;

/// The context in which an agent is checked.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct ProjectContext<'a> {
    pub(in crate::app) tenant: TenantId,
    pub(in crate::app) project: &'a ProjectId,
    pub(in crate::app) source: &'a Source,
}

/// An agent's name, and the role that the agent must be able to take. An empty name means the default agent.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct AgentUse<'a> {
    pub(in crate::app) name: &'a str,
    pub(in crate::app) mode: Mode,
}

/// The agents that the parts of a prompt name for subtasks.
pub(super) fn of_parts<'a>(bodies: impl Iterator<Item = &'a Body>) -> impl Iterator<Item = AgentUse<'a>> {
    let name = |body: &'a Body| match body {
        Body::Agent(agent) => Some(agent.name.as_str()),
        Body::Subtask(task) => Some(task.agent.as_str()),
        Body::Text(_)
        | Body::Reasoning(_)
        | Body::File(_)
        | Body::Tool(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Snapshot(_)
        | Body::Patch(_)
        | Body::Retry(_)
        | Body::Compaction(_) => None,
    };
    bodies.filter_map(name).map(|name| AgentUse { name, mode: Mode::Subagent })
}

/// Refuses agents that cannot exist in this context, or cannot take the role.
///
/// # Errors
/// `agent_unknown`, `store_unavailable`.
pub(in crate::app) async fn check<'a>(
    state: &State,
    context: ProjectContext<'_>,
    uses: impl Iterator<Item = AgentUse<'a>>,
) -> Result<(), Error> {
    let is_built_in = |agent: &AgentUse<'_>| match (Agent::parse(agent.name), agent.mode) {
        (Some(agent), Mode::Subagent) => Agent::SUBAGENTS.contains(&agent),
        (known, Mode::Primary | Mode::All) => agent.name.is_empty() || known.is_some(),
        (None, Mode::Subagent) => agent.name.is_empty(),
    };
    let others: Vec<AgentUse<'_>> = uses.filter(|agent| !is_built_in(agent)).collect();
    let Some(first) = others.first() else { return Ok(()) };
    let is_impossible = |agent: &&AgentUse<'_>| Agent::parse(agent.name).is_some() || !is_name(agent.name);
    if let Some(impossible) = others.iter().find(is_impossible) {
        return Err(unknown(*impossible));
    }
    if context.source.origin != Origin::Empty {
        return Ok(());
    }
    let stored = state.store.list_settings(context.tenant, Some(context.project)).await?;
    // Unreadable settings end the turn with their own error.
    let merged = state.settings_above(&stored).and_then(|documents| merge(&documents));
    let Ok(merged) = merged else { return Ok(()) };
    let is_configured = |agent: &AgentUse<'_>| merged.settings.agents.contains_key(agent.name);
    if others.iter().all(is_configured) { Ok(()) } else { Err(unknown(*first)) }
}

/// Whether the name of an agent can have this form.
fn is_name(name: &str) -> bool {
    name.len() <= limits::NAME_BYTES_MAX
        && name.chars().all(|c| c.is_alphanumeric() || "-_./ ".contains(c))
        && !agent::is_hidden(name)
}

fn unknown(agent: AgentUse<'_>) -> Error {
    let (all, role) = match agent.mode {
        Mode::Subagent => (&Agent::SUBAGENTS[..], "subagent"),
        Mode::Primary | Mode::All => (&Agent::ALL[..], "agent"),
    };
    let available: Vec<&str> = all.iter().map(|agent| agent.as_str()).collect();
    let name = head(agent.name, limits::NAME_BYTES_MAX);
    let message = format!("no such {role}: {name:?}; available: {}", available.join(", "));
    Invalid::AgentUnknown.because(message)
}
