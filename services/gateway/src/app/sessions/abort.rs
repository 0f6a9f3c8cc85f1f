//! Stops the turn of a session and its subtasks.
// Continues in store::session::inputs, which stores the abort, and in worker::turn, which performs it.

use crate::{app::gateway::Gateway, auth::principal::Principal, errors::error::Error, scope::Scope};
use bus::queue::QueueEntry;
use domain::ids::{EventId, SessionId};

/// The result of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortOutcome {
    TurnAborted,
    /// There was nothing to stop.
    WasIdle,
}

/// Asks the running turn and all subtasks below it to stop.
///
/// # Errors
/// `session_not_found`, `store_unavailable`; `session_quarantined`, after the subtasks were asked: an operator must release
/// the session itself first.
pub(crate) async fn abort(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
) -> Result<AbortOutcome, Error> {
    let (state, account) = (&gateway.state, principal.account(Scope::Write)?);
    let (tenant, share) = (account.tenant, Some(account.share));
    let dedupe = format!("abort:{}", state.id(EventId::make));
    let accepted = match state.store.accept_abort(tenant, session, &dedupe).await.map_err(Error::from) {
        Ok(accepted) => Ok(accepted),
        // The subtasks of a quarantined session must stop as well.
        Err(Error::Quarantined) => Err(Error::Quarantined),
        Err(error) => return Err(error),
    };
    let reached = accepted.as_ref().ok().and_then(Option::as_ref);
    if reached.is_some() {
        // Nudge the session's own loop before the subtasks are read.
        state.bus.nudge(tenant, session);
    }
    // The parent's loop also aborts its children, but it may wait for a worker slot while the children keep running. Abort them
    // here as well.
    let below = state.store.abort_below(tenant, session, &dedupe).await;
    let reached = reached.into_iter().chain(below.iter().flatten());
    let entries: Vec<_> =
        reached.map(|at| QueueEntry { tenant, session: &at.session, class: at.class, share }).collect();
    state.bus.interrupt(&entries).await;
    below?;
    Ok(accepted?.map_or(AbortOutcome::WasIdle, |_| AbortOutcome::TurnAborted))
}
