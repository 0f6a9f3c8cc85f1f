//! What the sessions of a tenant wrote since a moment, for streams that resume: read page by page from Postgres.

use super::{Horizon, told::Directory};
use crate::state::State;
use domain::{
    event::StoredEvent,
    ids::{ProjectId, SessionId, TenantId},
    limits,
};
use std::{sync::Arc, vec};
use store::{log::feed::FeedEntry, session::deletion::Tombstone};

/// Some of it may have been told before.
pub(crate) struct Past {
    tenant: TenantId,
    since: Horizon,
    sessions: vec::IntoIter<FeedEntry>,
    deleted: vec::IntoIter<Tombstone>,
    /// What is left of the session at hand.
    left: Option<Left>,
}

struct Left {
    session: FeedEntry,
    after: u64,
}

/// Events of one session, in order.
pub(crate) struct Page {
    pub(crate) session: SessionId,
    pub(crate) project: Arc<Directory>,
    pub(crate) events: Vec<StoredEvent>,
}

impl From<Tombstone> for Page {
    fn from(gone: Tombstone) -> Self {
        let events = vec![gone.event()];
        let project = Arc::new(Directory { project: gone.project, name: gone.project_name });
        Self { session: gone.session, project, events }
    }
}

impl Past {
    /// Finds what was written in a project, or in the tenant.
    pub(crate) async fn since(
        state: &State,
        tenant: TenantId,
        project: Option<&ProjectId>,
        since: Horizon,
    ) -> Result<Self, store::error::Error> {
        let (_, mut sessions) = state.store.list_written(tenant, since).await?;
        sessions.retain(|written| project.is_none_or(|project| project == &written.project));
        // After the moment of the others: what is written meanwhile may be found twice, and nothing is passed over.
        let mut deleted = state.store.list_deleted(tenant, since).await?;
        deleted.retain(|gone| project.is_none_or(|project| project == &gone.project));
        Ok(Self { tenant, since, sessions: sessions.into_iter(), deleted: deleted.into_iter(), left: None })
    }

    /// Sessions that wrote something, or are gone, and were not read yet.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.deleted.len()
    }

    /// Reads the next page; `None` at the end.
    pub(crate) async fn next(&mut self, state: &State) -> Result<Option<Page>, store::error::Error> {
        loop {
            let Left { session, after } = match self.left.take() {
                Some(left) => left,
                None => match self.sessions.next() {
                    Some(session) => self.begin(state, session).await?,
                    None => return Ok(self.deleted.next().map(Page::from)),
                },
            };
            let page = state.store.list_events(self.tenant, &session.session, after, limits::EVENTS_PAGE);
            let events = page.await?;
            // Nothing: deleted meanwhile, or read.
            let Some(last) = events.last().map(|event| event.seq) else { continue };
            let (id, project, name) =
                (session.session.clone(), session.project.clone(), session.project_name.clone());
            if last < session.seq {
                self.left = Some(Left { session, after: last });
            }
            return Ok(Some(Page { session: id, project: Arc::new(Directory { project, name }), events }));
        }
    }

    async fn begin(&self, state: &State, session: FeedEntry) -> Result<Left, store::error::Error> {
        let first = state.store.find_first_since(self.tenant, &session.session, self.since).await?;
        let after = first.map_or(session.seq, |first| first.saturating_sub(1));
        Ok(Left { session, after })
    }
}
