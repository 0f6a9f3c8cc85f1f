//! Changes and deletes sessions.

use crate::{
    app::{
        ground::{checks, gateway::Gateway, wake},
        prompts::agents::{self, AgentUse, ProjectContext},
    },
    auth::principal::Principal,
    ground::{
        error::Error,
        sandbox::own_fence,
        scope::Scope,
        state::{State, now},
    },
};
use domain::{
    conversation::message::ModelRef,
    ids::{EventId, SessionId, TenantId},
    policy::agent::Mode,
    session::DEFAULT_AGENT,
};
use rpc::v1;
use store::session::{deletion::Deletion, row::Session, sessions::Patch};

/// A client's change of a session. `None` leaves a field unchanged.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionChange {
    pub(crate) title: Option<String>,
    pub(crate) archived: Option<bool>,
    /// The agent of later prompts; empty: the default one.
    pub(crate) agent: Option<String>,
    /// The model of later prompts.
    pub(crate) model: Option<ModelRef>,
}

/// Changes a session.
///
/// # Errors
/// `name_empty`, `name_too_long`, `agent_unknown`, `model_unknown`, `session_not_found`, `store_unavailable`.
pub(crate) async fn update(
    gateway: &Gateway,
    principal: &Principal,
    id: &SessionId,
    change: SessionChange,
) -> Result<Session, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Write)?);
    checks::model(state, change.model.as_ref())?;
    let patch = Patch {
        title: change.title.as_deref().map(checks::name).transpose()?,
        archived: change.archived,
        agent: match change.agent {
            Some(agent) => Some(check_agent(state, tenant, id, agent).await?),
            None => None,
        },
        model: change.model,
    };
    let event = state.id(EventId::make);
    let (session, events) = state.store.update_session(tenant, id, &patch, &event, now()).await?;
    state.publisher.publish_events(tenant, id, &events);
    Ok(session)
}

async fn check_agent(
    state: &State,
    tenant: TenantId,
    id: &SessionId,
    agent: String,
) -> Result<String, Error> {
    let session = state.store.get_session(tenant, id).await?;
    let context = ProjectContext { tenant, project: &session.info.project_id, source: &session.source };
    let agent_use = AgentUse { name: &agent, mode: Mode::Primary };
    agents::check(state, context, std::iter::once(agent_use)).await?;
    Ok(if agent.is_empty() { DEFAULT_AGENT.to_owned() } else { agent })
}

/// Deletes a session with its files and its subtasks. Its parent continues without it.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn delete(gateway: &Gateway, principal: &Principal, id: &SessionId) -> Result<(), Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let tenant = account.tenant;
    let session = state.store.get_session(tenant, id).await?;
    let Deletion { parent, tombstones } = state.store.delete_session(tenant, id).await?;
    for tombstone in &tombstones {
        state.publisher.publish_events(tenant, &tombstone.session, &[tombstone.event()]);
        state.bus.nudge(tenant, &tombstone.session);
    }
    if let Some(parent) = parent {
        wake::interrupt(state, account, &parent, session.class).await;
    }
    for tombstone in tombstones {
        close_workspace(state, tenant, &tombstone.session, tombstone.epoch.saturating_add(1)).await;
    }
    Ok(())
}

/// Removes the files of a deleted session. The rows are gone, so a loop that still runs is fenced. If the sandbox is down, the
/// files remain, unreachable, until the sandbox's own clean-up.
async fn close_workspace(state: &State, tenant: TenantId, id: &SessionId, epoch: u64) {
    let request = v1::CloseWorkspaceRequest { fence: Some(own_fence(tenant, id, epoch)) };
    if let Err(status) = state.sandbox.files().close_workspace(request).await {
        tracing::warn!(session.id = %id, "cannot remove the workspace: {}", status.message());
    }
}
