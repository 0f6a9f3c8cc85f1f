//! The budget of a session and its subtasks: reading it, and raising it while they wait for it.

use crate::{
    app::ground::{gateway::Gateway, wake},
    auth::principal::Principal,
    ground::{error::Error, invalid::Invalid, scope::Scope},
};
use domain::{
    ids::{EventId, SessionId},
    money::UsdPicos,
};
use store::session::tree::budget::Budget;

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

/// Returns the budget of the tree that a session belongs to.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn get(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<Budget, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let root = store.get_session(tenant, session).await?.root_id;
    Ok(store.get_budget(tenant, &root).await?)
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
) -> Result<Budget, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let (max, tenant) = (amount(max_usd_picos)?, account.tenant);
    let session = state.store.get_session(tenant, session).await?;
    let dedupe = state.id(EventId::make);
    let waiting = state.store.set_budget(tenant, &session.root_id, max, dedupe.as_str()).await?;
    for id in waiting {
        wake::interrupt(state, account, &id, session.class).await;
    }
    Ok(state.store.get_budget(tenant, &session.root_id).await?)
}
