//! What a session and its subtasks may spend together: reading it, and raising it while they wait for it.

use super::from_store;
use crate::{auth::Principal, state::State};
use domain::{
    ids::{EventId, SessionId, TenantId},
    money::UsdPicos,
};
use rpc::{status::invalid, v1};
use tonic::Status;

/// Reads an amount; 0 is no limit.
pub(super) fn amount(picos: i64) -> Result<Option<UsdPicos>, Status> {
    match picos {
        0 => Ok(None),
        1.. => Ok(Some(UsdPicos(picos))),
        _ => Err(invalid("budget_invalid", "a budget is more than nothing, or 0 for no limit")),
    }
}

/// Gives the budget of a root session.
pub(super) async fn read(state: &State, tenant: TenantId, root: &SessionId) -> Result<v1::Budget, Status> {
    let budget = state.store.get_budget(tenant, root).await.map_err(from_store)?;
    let max_usd_picos = budget.max.map_or(0, |max| max.0);
    Ok(v1::Budget { spent_usd_picos: budget.spent.0, max_usd_picos })
}

/// Sets the budget of the tree that a session belongs to, and wakes what waits for it.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(super) async fn set(
    state: &State,
    principal: &Principal,
    id: &SessionId,
    max: Option<UsdPicos>,
) -> Result<v1::Budget, Status> {
    let tenant = principal.tenant;
    let session = state.store.get_session(tenant, id).await.map_err(from_store)?;
    let dedupe = state.id(EventId::make);
    let told =
        state.store.set_budget(tenant, &session.root_id, max, dedupe.as_str()).await.map_err(from_store)?;
    for session_id in told {
        state.interrupt(principal, &session_id, session.class).await;
    }
    read(state, tenant, &session.root_id).await
}
