//! The sessions that a client works with. OpenCode's clients name only a directory when they ask for files, changes and terminals; here each session of
//! a directory has files of its own. So the gateway notes which sessions the clients with a key create, prompt and read, and means the last one.

use crate::{
    app::gateway::Gateway, auth::principal::Principal, errors::error::Error, scope::Scope, state::State,
};
use bus::visits::Visitor;
use domain::ids::SessionId;
use std::time::Duration;
use store::{rows::session_row::Session, tenant::worktrees::SessionArea};
use tokio::time::timeout;

/// Wait for Redis. Then the newest session of the directory counts: a client must not wait for a hint.
const VISITS_WAIT: Duration = Duration::from_millis(250);

/// Notes that a client works with a session. A visit may get lost.
pub(crate) async fn note(gateway: &Gateway, principal: &Principal, session: &SessionId) {
    let Ok(visitor) = visitor(principal) else { return };
    match timeout(VISITS_WAIT, gateway.state.bus.note_visit(visitor, session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a visit is not noted");
        }
        Err(_) => tracing::debug!("a visit is not noted in time"),
    }
}

/// Lists the root sessions of a directory that the clients with this key visited, the last one first. A client that shows a session also reads its
/// subtasks.
///
/// # Errors
/// `scope_missing`, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    area: &SessionArea,
) -> Result<Vec<Session>, Error> {
    let visitor = visitor(principal)?;
    let ids = find_ids(&gateway.state, visitor).await;
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let mut sessions = gateway.state.store.find_sessions(visitor.tenant, area, &ids).await?;
    sessions.retain(|session| session.info.parent_id.is_none());
    sessions.sort_by_key(|session| ids.iter().position(|id| *id == session.info.id));
    Ok(sessions)
}

/// No visits are known while Redis does not answer.
async fn find_ids(state: &State, visitor: Visitor<'_>) -> Vec<SessionId> {
    match timeout(VISITS_WAIT, state.bus.list_visits(visitor)).await {
        Ok(Ok(ids)) => ids,
        Ok(Err(error)) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot read visits");
            vec![]
        }
        Err(_) => vec![],
    }
}

fn visitor(principal: &Principal) -> Result<Visitor<'_>, Error> {
    Ok(Visitor { tenant: principal.tenant(Scope::Read)?, key: principal.reader() })
}
