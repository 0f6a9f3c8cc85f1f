//! Changes and deletes sessions.

use super::wake;
use crate::{
    app::{
        checks,
        choices::agents::{self, AgentUse},
        gateway::Gateway,
    },
    auth::principal::Principal,
    backends::sandbox::own_fence,
    errors::error::Error,
    scope::Scope,
    state::{State, now},
};
use domain::{
    conversation::message::ModelRef,
    ids::{EventId, SessionId, TenantId},
    policy::agent::Mode,
    session::DEFAULT_AGENT,
};
use rpc::v1;
use std::time::Duration;
use store::{
    control::removals::Removal,
    rows::session_row::Session,
    session::{deletion::Deletion, sessions::Patch},
};

/// Time for which the deletion of a session waits for the sandbox: most removals take less than a second.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);

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
    let agent_use = AgentUse { name: &agent, mode: Mode::Primary };
    agents::check_of_session(state, tenant, id, std::iter::once(agent_use)).await?;
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
    let Deletion { parent, tombstones, removals } =
        principal.acting(&state.store).delete_session(tenant, id).await?;
    for tombstone in &tombstones {
        state.publisher.publish_events(tenant, &tombstone.session, &[tombstone.event()]);
        state.bus.nudge(tenant, &tombstone.session);
    }
    if let Some(parent) = parent {
        wake::interrupt(state, account, &parent, session.class).await;
    }
    remove_files(state, &removals).await;
    Ok(())
}

/// Removes the files of deleted sessions. Workers repeat what fails here, or takes too long.
async fn remove_files(state: &State, removals: &[Removal]) {
    let all = futures::future::join_all(removals.iter().map(|removal| remove_files_of(state, removal)));
    if tokio::time::timeout(REMOVAL_WAIT, all).await.is_err() {
        tracing::info!("the files of a deleted session are removed later");
    }
}

async fn remove_files_of(state: &State, removal: &Removal) {
    let Removal { tenant, session, epoch } = removal;
    let request = v1::CloseWorkspaceRequest { fence: Some(own_fence(*tenant, session, *epoch)) };
    if let Err(status) = state.sandbox.files().close_workspace(request).await {
        return tracing::warn!(session.id = %session, "cannot remove the workspace yet: {}", status.message());
    }
    if let Err(error) = state.store.finish_removal(removal).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, session.id = %session, "cannot record that the workspace is removed");
    }
}
