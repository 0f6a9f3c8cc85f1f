//! The budget of a session and its subtasks: reading it, and raising it while they wait for it.

use super::wake;
use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::{error::Error, invalid::Invalid},
    scope::Scope,
};
use domain::{
    ids::{EventId, SessionId, TenantId},
    money::UsdPicos,
};
use store::{Store, session::tree::budget::Budget};

/// Reads an amount; 0 means no limit.
///
/// # Errors
/// `budget_invalid`.
pub(super) fn amount(picos: i64) -> Result<Option<UsdPicos>, Error> {
    match picos {
        0 => Ok(None),
        1.. => Ok(Some(UsdPicos(picos))),
        _ => Err(Invalid::Budget.because("the budget must be positive, or 0 for no limit")),
    }
}

/// The budget of the tree that a session belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionBudget {
    pub(crate) tree: Budget,
    /// What the session itself spent.
    pub(crate) session_spent: UsdPicos,
}

/// Returns the budget of the tree that a session belongs to.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn get(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<SessionBudget, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let root = store.get_session(tenant, session).await?.root_id;
    read(store, tenant, &root, session).await
}

async fn read(
    store: &Store,
    tenant: TenantId,
    root: &SessionId,
    session: &SessionId,
) -> Result<SessionBudget, Error> {
    let tree = store.get_budget(tenant, root).await?;
    Ok(SessionBudget { tree, session_spent: store.get_session_spent(tenant, session).await? })
}

/// Sets the budget of the tree that a session belongs to, and wakes the sessions that wait for it. 0 means no limit.
///
/// # Errors
/// `budget_invalid`, `session_not_found`, `store_unavailable`.
pub(crate) async fn set(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    max_usd_picos: i64,
) -> Result<SessionBudget, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let (max, tenant) = (amount(max_usd_picos)?, account.tenant);
    let session = state.store.get_session(tenant, session).await?;
    let dedupe = state.id(EventId::make);
    let waiting =
        principal.acting(&state.store).set_budget(tenant, &session.root_id, max, dedupe.as_str()).await?;
    for id in waiting {
        wake::interrupt(state, account, &id, session.class).await;
    }
    read(&state.store, tenant, &session.root_id, &session.info.id).await
}
