//! Reads sessions.

use super::waits::{Limits, Wait};
use crate::{
    app::{
        gateway::Gateway,
        page::{List, PageRequest},
    },
    auth::principal::Principal,
    errors::error::Error,
    scope::Scope,
};
use domain::{
    ids::{SessionId, Timestamp},
    wait::Reason,
};
use serde_json::Value;
use store::{
    log::feed::{RecentSession, Window},
    rows::session_row::Session,
    session::sessions::Filter,
    tenant::worktrees::SessionArea,
};

/// A session, with the reason for its wait if it waits and the caller asked for it.
#[derive(Debug, Clone)]
pub(crate) struct SessionView {
    pub(crate) session: Session,
    pub(crate) wait: Option<Wait>,
}

/// Returns a session.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn get(gateway: &Gateway, principal: &Principal, id: &SessionId) -> Result<Session, Error> {
    Ok(gateway.state.store.get_session(principal.tenant(Scope::Read)?, id).await?)
}

/// Returns a session, with the reason for its wait.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn explain(
    gateway: &Gateway,
    principal: &Principal,
    id: &SessionId,
) -> Result<SessionView, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let session = state.store.get_session(tenant, id).await?;
    let mut wait = Limits::read(state, tenant).await?.explain(&session);
    if let Some(wait) = wait.as_mut().filter(|wait| wait.reason == Reason::Children.as_str()) {
        // Count after reading the session: a subtask that ended in between is in neither number.
        wait.add_subtasks(state.store.count_below(tenant, id).await?);
    }
    Ok(SessionView { session, wait })
}

/// Checks that a session exists.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn check(gateway: &Gateway, principal: &Principal, id: &SessionId) -> Result<(), Error> {
    gateway.state.store.get_head(principal.tenant(Scope::Read)?, id).await?;
    Ok(())
}

/// Lists sessions, last changed first. If the list contains only waiting sessions, each has the reason for its wait.
///
/// # Errors
/// `page_too_large`, `cursor_invalid`, `requests_too_many` for a search, `store_unavailable`.
pub(crate) async fn list(
    gateway: &Gateway,
    principal: &Principal,
    filter: &Filter,
    page: PageRequest,
) -> Result<List<SessionView>, Error> {
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    let page = page.check(is_cursor)?;
    let _permit = match filter.search {
        Some(_) => Some(state.heavy_request(tenant).await?),
        None => None,
    };
    let sessions = state.store.list_sessions(tenant, filter, &page).await?;
    let sessions = List::of(&page, sessions, |session| cursor(session.info.time.updated, session));
    let limits = if filter.waiting { Some(Limits::read(state, tenant).await?) } else { None };
    let view = |session| {
        let wait = limits.as_ref().and_then(|limits| limits.explain(&session));
        SessionView { session, wait }
    };
    Ok(List { entries: sessions.entries.into_iter().map(view).collect(), next: sessions.next })
}

/// Lists the subtasks of a session, oldest first.
///
/// # Errors
/// `session_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_children(
    gateway: &Gateway,
    principal: &Principal,
    parent: &SessionId,
    page: PageRequest,
) -> Result<List<Session>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    store.get_head(tenant, parent).await?;
    let page = page.check(is_cursor)?;
    let children = store.list_children(tenant, parent, &page).await?;
    Ok(List::of(&page, children, |child| cursor(child.info.time.created, child)))
}

/// Lists the sessions of a directory, or of all of them, that are not idle.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_active(
    gateway: &Gateway,
    principal: &Principal,
    area: Option<&SessionArea>,
) -> Result<Vec<RecentSession>, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let window = Window { since: None, limit: domain::limits::PAGE_MAX };
    Ok(gateway.state.store.list_recent(tenant, area, window).await?)
}

/// Returns the to-do list of a session as JSON; `null` if the agent has none.
///
/// # Errors
/// `session_not_found`, `store_unavailable`.
pub(crate) async fn get_todos(
    gateway: &Gateway,
    principal: &Principal,
    id: &SessionId,
) -> Result<Value, Error> {
    Ok(gateway.state.store.get_todos(principal.tenant(Scope::Read)?, id).await?)
}

/// The cursor after a session in a list that is ordered by `at`.
fn cursor(at: Timestamp, session: &Session) -> String {
    format!("{}.{}", at.0, session.info.id)
}

/// Whether a cursor can come from [`cursor`].
fn is_cursor(text: &str) -> bool {
    let parts = text.split_once('.');
    parts.is_some_and(|(ms, id)| ms.parse::<i64>().is_ok() && id.parse::<SessionId>().is_ok())
}
