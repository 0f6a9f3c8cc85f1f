//! Begins event streams.
// Continues in streams::subscription, for a session, and in streams::tenant_subscription.

use crate::{
    app::gateway::Gateway,
    auth::principal::Principal,
    errors::error::Error,
    memory::taken_room::TakenRoom,
    scope::Scope,
    streams::{
        backlog::{Backlog, BacklogRange},
        bounded::ring,
        cursor::{Start, TenantCursor},
        feed::Feed,
        subscription::{self, Items, Subscription},
        tenant_subscription::{self, TenantItems, TenantSubscription},
        update::Update,
    },
};
use domain::ids::{ProjectId, SessionId};
use std::sync::Arc;

/// A client's subscription to a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionStream {
    pub(crate) session: SessionId,
    pub(crate) start: Start,
    /// End after an idle event at this position or later.
    pub(crate) until_idle_after: Option<u64>,
    pub(crate) taken: TakenRoom,
}

/// A client's subscription to all sessions of its tenant.
#[derive(Debug, Clone)]
pub(crate) struct TenantStream {
    /// `None`: all projects.
    pub(crate) project: Option<ProjectId>,
    /// The position from which the client resumes.
    pub(crate) since: Option<TenantCursor>,
    pub(crate) taken: TakenRoom,
}

/// Subscribes to a session.
///
/// # Errors
/// `streams_too_many`; those of [`subscription::subscribe`].
pub(crate) async fn follow_session(
    gateway: &Gateway,
    principal: &Principal,
    stream: SessionStream,
) -> Result<Items, Error> {
    let SessionStream { session, start, until_idle_after, taken } = stream;
    let (tenant, hinted) = (principal.tenant(Scope::Read)?, session.clone());
    let room = gateway.begin_stream(principal, &taken).await?;
    let subscription = Subscription { room, session, start, until_idle_after };
    let items = subscription::subscribe(&gateway.state, &gateway.hub, subscription).await?;
    // A person who follows a session may soon prompt it. A worker checks whether that would be its first prompt.
    gateway.state.bus.hint_warm_up(tenant, &hinted);
    Ok(items)
}

/// Subscribes to all sessions of the tenant, or of a project.
///
/// # Errors
/// `project_not_found`, `streams_too_many`; those of [`tenant_subscription::subscribe`].
pub(crate) async fn follow_tenant(
    gateway: &Gateway,
    principal: &Principal,
    stream: TenantStream,
) -> Result<TenantItems, Error> {
    let TenantStream { project, since, taken } = stream;
    let (state, tenant) = (&gateway.state, principal.tenant(Scope::Read)?);
    if let Some(project) = &project {
        state.store.get_project(tenant, project).await?;
    }
    let room = gateway.begin_stream(principal, &taken).await?;
    let subscription = TenantSubscription { room, reader: principal.reader().to_owned(), project, since };
    tenant_subscription::subscribe(state, &gateway.feeds, subscription).await
}

/// A tenant's feed. The feed lives as long as this value is held.
pub(crate) struct JoinedFeed {
    pub(crate) feed: Arc<Feed>,
    pub(crate) updates: ring::Receiver<Update>,
}

/// Joins the tenant's feed, for a protocol that shapes its own stream.
///
/// # Errors
/// `scope_missing`.
pub(crate) async fn join_feed(gateway: &Gateway, principal: &Principal) -> Result<JoinedFeed, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let (feed, updates) = gateway.feeds.join(&gateway.state, tenant).await;
    Ok(JoinedFeed { feed, updates })
}

/// Opens a range of events, for a protocol that shapes its own stream.
///
/// # Errors
/// `store_unavailable`.
pub(crate) async fn open_backlog(gateway: &Gateway, range: BacklogRange) -> Result<Backlog, Error> {
    Backlog::open(&gateway.state, range).await
}
