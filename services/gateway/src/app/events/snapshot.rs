//! The current state, for a client whose stream was cut: the sessions that are active or changed recently, and the open
//! requests to people.

use crate::{
    app::{
        gateway::Gateway,
        history::messages::{self, Extent},
        page::PageRequest,
    },
    auth::principal::Principal,
    errors::{entity::Entity, error::Error},
    scope::Scope,
    streams::update::Directory,
};
use domain::{
    conversation::message::Message,
    ids::{SessionId, TenantId, Timestamp},
    session::Info,
};
use serde_json::Value;
use store::{
    Page, Store,
    log::{
        feed::{RecentSession, Window},
        messages::MessageWithParts,
    },
    people::requests::{RequestRecord, RequestScope},
    tenant::worktrees::SessionArea,
};

/// The state of a session.
#[derive(Debug)]
pub(crate) struct SessionSnapshot {
    pub(crate) info: Info,
    pub(crate) directory: Directory,
    /// The messages of the newest turn.
    pub(crate) turn: Vec<MessageWithParts>,
    /// `null`: the agent has no to-do list.
    pub(crate) todos: Value,
}

#[derive(Debug, Clone)]
pub(crate) struct RecentRange {
    /// `None`: those of all projects.
    pub(crate) area: Option<SessionArea>,
    /// Idle sessions must have changed since then.
    pub(crate) since: Timestamp,
    pub(crate) limit: u32,
}

/// Lists the sessions that are active or changed recently, last changed first.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_recent(
    gateway: &Gateway,
    principal: &Principal,
    range: &RecentRange,
) -> Result<Vec<RecentSession>, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let window = Window { since: Some(range.since), limit: range.limit };
    Ok(gateway.state.store.list_recent(tenant, range.area.as_ref(), window).await?)
}

/// Returns the state of a session, with at most `messages_max` messages; `None` if it has been deleted.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn find(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    messages_max: u32,
) -> Result<Option<SessionSnapshot>, Error> {
    match get(gateway, principal, session, messages_max).await {
        Err(Error::NotFound(_)) => Ok(None),
        snapshot => snapshot.map(Some),
    }
}

async fn get(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    messages_max: u32,
) -> Result<SessionSnapshot, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let stored = store.get_session(tenant, session).await?;
    let page = PageRequest { limit: Some(messages_max), cursor: None };
    let list = messages::list(gateway, principal, session, page, Extent::OnePage).await;
    let mut turn = list.map(|list| list.entries).unwrap_or_default();
    turn.drain(..newest_turn(&turn));
    let todos = store.get_todos(tenant, session).await?;
    let directory = Directory::from(&stored);
    Ok(SessionSnapshot { info: stored.info, directory, turn, todos })
}

/// The index of the first message of the newest turn. A turn begins with everything that was said since the last answer: notes,
/// and all prompts that waited.
fn newest_turn(messages: &[MessageWithParts]) -> usize {
    let is_answer = |entry: &MessageWithParts| matches!(entry.message, Message::Assistant(_));
    let spoken = messages.iter().rposition(|entry| !is_answer(entry)).unwrap_or(0);
    messages[..spoken].iter().rposition(is_answer).map_or(0, |answer| answer + 1)
}

/// An open request to people, with its session.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub(crate) directory: Directory,
    pub(crate) request: RequestRecord,
}

/// Lists the open requests of a directory, or of all of them: permissions before questions.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn list_requests(
    gateway: &Gateway,
    principal: &Principal,
    area: Option<&SessionArea>,
) -> Result<Vec<OpenRequest>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let page = Page { limit: domain::limits::PAGE_MAX, cursor: None };
    let scope = area.map_or(RequestScope::Tenant, RequestScope::Area);
    let mut open = vec![];
    for prefix in ["per", "que"] {
        for request in store.list_requests(tenant, scope, prefix, &page).await? {
            match directory(store, tenant, &request.request.session_id).await {
                Ok(directory) => open.push(OpenRequest { directory, request }),
                // The session has been deleted.
                Err(Error::NotFound(Entity::Session)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(open)
}

async fn directory(store: &Store, tenant: TenantId, session: &SessionId) -> Result<Directory, Error> {
    Ok(Directory::from(&store.get_session(tenant, session).await?))
}
