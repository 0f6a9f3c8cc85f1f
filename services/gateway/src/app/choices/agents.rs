//! Checks the agents that a prompt or a session names. The gateway knows the built-in agents, those of stored settings, and those of a
//! repository once the files of the session are open, or once its commit was read if the source always names the same one. Until then, every
//! possible name passes for a session with a repository; the worker then ends the turn with `agent_not_found`.

use crate::{
    app::settings,
    errors::{error::Error, invalid::Invalid},
    state::State,
};
use ::settings::{Agent as AgentSettings, Settings, merge::merge};
use domain::{
    conversation::part::Body,
    ids::{ProjectId, SessionId, TenantId},
    limits,
    policy::agent::{self, Agent, Mode},
    session::{Origin, Source},
    text::head,
};
use store::rows::session_row::Session;

/// Agents that a refusal lists: enough to see a mistake in writing.
const LISTED_AGENTS: usize = 20;

/// The context in which an agent is checked.
#[derive(Debug, Clone, Copy)]
struct ProjectContext<'a> {
    tenant: TenantId,
    project: &'a ProjectId,
    /// Whether there is a repository, which may have agents.
    has_files: bool,
    /// The session whose repository is asked; `None` before there is one.
    session: Option<&'a Session>,
}

/// An agent's name, and the role that the agent must be able to take. An empty name means the default agent.
#[derive(Debug, Clone, Copy)]
pub(in crate::app) struct AgentUse<'a> {
    pub(in crate::app) name: &'a str,
    pub(in crate::app) mode: Mode,
}

/// The agents that the parts of a prompt name for subtasks.
pub(in crate::app) fn of_parts<'a>(
    bodies: impl Iterator<Item = &'a Body>,
) -> impl Iterator<Item = AgentUse<'a>> {
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

/// Refuses an agent that cannot exist in a new session, or cannot take the role. `source` is that of the session, if it is not that of its project.
///
/// # Errors
/// `project_not_found`, `agent_unknown`, `store_unavailable`.
pub(in crate::app) async fn check_of_project(
    state: &State,
    tenant: TenantId,
    project: &ProjectId,
    source: Option<&Source>,
    agent: AgentUse<'_>,
) -> Result<(), Error> {
    if is_built_in(&agent) {
        return Ok(());
    }
    Box::pin(async {
        let has_files = match source {
            Some(source) => source.origin != Origin::Empty,
            None => state.store.get_project(tenant, project).await?.source.origin != Origin::Empty,
        };
        check(state, ProjectContext { tenant, project, has_files, session: None }, &[agent]).await
    })
    .await
}

/// Refuses agents that cannot exist in a session, or cannot take the role. Reads the session only if it must: most prompts name built-in agents.
///
/// # Errors
/// `session_not_found`, `agent_unknown`, `store_unavailable`.
pub(in crate::app) async fn check_of_session<'a>(
    state: &State,
    tenant: TenantId,
    session: &SessionId,
    uses: impl Iterator<Item = AgentUse<'a>>,
) -> Result<(), Error> {
    let others: Vec<AgentUse<'_>> = uses.filter(|agent| !is_built_in(agent)).collect();
    if others.is_empty() {
        return Ok(());
    }
    // Boxed: reading the files of a repository takes far more memory than waiting.
    Box::pin(async {
        let session = state.store.get_session(tenant, session).await?;
        let (project, has_files) = (&session.info.project_id, session.source.origin != Origin::Empty);
        check(state, ProjectContext { tenant, project, has_files, session: Some(&session) }, &others).await
    })
    .await
}

fn is_built_in(agent: &AgentUse<'_>) -> bool {
    match (Agent::parse(agent.name), agent.mode) {
        (Some(agent), Mode::Subagent) => Agent::SUBAGENTS.contains(&agent),
        (known, Mode::Primary | Mode::All) => agent.name.is_empty() || known.is_some(),
        (None, Mode::Subagent) => agent.name.is_empty(),
    }
}

/// Checks agents that are not built in.
async fn check(state: &State, context: ProjectContext<'_>, others: &[AgentUse<'_>]) -> Result<(), Error> {
    let is_impossible = |agent: &&AgentUse<'_>| Agent::parse(agent.name).is_some() || !is_name(agent.name);
    if let Some(impossible) = others.iter().find(is_impossible) {
        return Err(unknown(*impossible, &Settings::default()));
    }
    // The stored settings cost one query; the files of a repository cost a call to its sandbox machine.
    let stored = state.store.list_settings(context.tenant, Some(context.project)).await?;
    let merged = state.settings_above(&stored).and_then(|documents| merge(&documents));
    // Unreadable settings end the turn with their own error.
    let Ok(merged) = merged else { return Ok(()) };
    let Some(missing) = others.iter().find(|agent| !is_configured(agent, &merged.settings)) else {
        return Ok(());
    };
    if !context.has_files {
        return Err(unknown(*missing, &merged.settings));
    }
    // Without files, the next turn reads the commit that a branch names by then.
    let is_known = |session: &&Session| session.has_workspace || session.source.is_fixed();
    let Some(session) = context.session.filter(is_known) else { return Ok(()) };
    let reader = state.file_reads.for_prompt();
    let all = settings::find_session_settings(state, &reader, context.tenant, session).await?;
    let Some(all) = all else {
        return Ok(());
    };
    let missing = others.iter().find(|agent| !is_configured(agent, &all));
    missing.map_or(Ok(()), |missing| Err(unknown(*missing, &all)))
}

fn is_configured(agent: &AgentUse<'_>, settings: &Settings) -> bool {
    settings.agents.contains_key(agent.name)
}

/// Whether the name of an agent can have this form.
fn is_name(name: &str) -> bool {
    name.len() <= limits::NAME_BYTES_MAX
        && name.chars().all(|c| c.is_alphanumeric() || "-_./ ".contains(c))
        && !agent::is_hidden(name)
}

fn unknown(agent: AgentUse<'_>, settings: &Settings) -> Error {
    let (built_in, role) = match agent.mode {
        Mode::Subagent => (&Agent::SUBAGENTS[..], "subagent"),
        Mode::Primary | Mode::All => (&Agent::ALL[..], "agent"),
    };
    let is_further = |(name, _): &(&String, &AgentSettings)| Agent::parse(name).is_none();
    let fits = |(_, own): &(&String, &AgentSettings)| {
        let fits = own.mode.is_none_or(|mode| mode == Mode::All || mode == agent.mode);
        fits && own.hidden != Some(true) && own.disable != Some(true)
    };
    let further = settings.agents.iter().filter(is_further).filter(fits);
    let available: Vec<&str> =
        built_in.iter().map(|agent| agent.as_str()).chain(further.map(|(name, _)| name.as_str())).collect();
    let listed = available.iter().take(LISTED_AGENTS).copied().collect::<Vec<_>>().join(", ");
    let more = match available.len().saturating_sub(LISTED_AGENTS) {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let name = head(agent.name, limits::NAME_BYTES_MAX);
    Invalid::AgentUnknown.because(format!("no such {role}: {name:?}; available: {listed}{more}"))
}
