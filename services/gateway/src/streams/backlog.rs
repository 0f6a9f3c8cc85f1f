//! The events that the sessions of a tenant wrote since a moment, for streams that resume: read page by page from Postgres.

use super::{cursor::TenantCursor, update::Directory};
use crate::ground::{error::Error, state::State};
use domain::{
    event::StoredEvent,
    ids::{ProjectId, SessionId, TenantId},
    limits,
};
use std::{sync::Arc, vec};
use store::{log::feed::FeedEntry, session::deletion::Tombstone};

/// The range of events.
#[derive(Debug, Clone)]
pub(crate) struct BacklogRange {
    pub(crate) tenant: TenantId,
    /// `None`: those of all projects.
    pub(crate) project: Option<ProjectId>,
    pub(crate) since: TenantCursor,
}

/// The events of a range. The reader may already have some of those of sessions whose position its cursor does not hold.
pub(crate) struct Backlog {
    state: State,
    range: BacklogRange,
    sessions: vec::IntoIter<FeedEntry>,
    deleted: vec::IntoIter<Tombstone>,
    /// The rest of the current session.
    rest: Option<SessionRest>,
}

struct SessionRest {
    session: FeedEntry,
    after: u64,
}

/// Events of one session, in order.
pub(crate) struct BacklogPage {
    pub(crate) session: SessionId,
    pub(crate) directory: Arc<Directory>,
    pub(crate) events: Vec<StoredEvent>,
}

impl From<Tombstone> for BacklogPage {
    fn from(tombstone: Tombstone) -> Self {
        let events = vec![tombstone.event()];
        let directory = Directory { project: tombstone.project, name: tombstone.project_name };
        Self { session: tombstone.session, directory: Arc::new(directory), events }
    }
}

impl Backlog {
    /// Finds the sessions that wrote events or were deleted.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn open(state: &State, range: BacklogRange) -> Result<Self, Error> {
        let BacklogRange { tenant, since, .. } = &range;
        let (tenant, horizon) = (*tenant, since.horizon);
        let is_inside = |of: &ProjectId| range.project.as_ref().is_none_or(|project| project == of);
        let (_, mut sessions) = state.store.list_written(tenant, horizon).await?;
        sessions.retain(|written| {
            is_inside(&written.project) && since.sent(&written.session, written.seq) < written.seq
        });
        // Read deletions after the sessions: a deletion in between may be found twice, but never missed.
        let mut deleted = state.store.list_deleted(tenant, horizon).await?;
        deleted.retain(|tombstone| {
            let seq = tombstone.event().seq;
            is_inside(&tombstone.project) && since.sent(&tombstone.session, seq) < seq
        });
        let (sessions, deleted) = (sessions.into_iter(), deleted.into_iter());
        Ok(Self { state: state.clone(), range, sessions, deleted, rest: None })
    }

    /// The number of sessions still to read.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.deleted.len()
    }

    /// Reads the next page; `None` at the end.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn next(&mut self) -> Result<Option<BacklogPage>, Error> {
        loop {
            let SessionRest { session, after } = match self.rest.take() {
                Some(rest) => rest,
                None => match self.sessions.next() {
                    Some(session) => self.begin(session).await?,
                    None => return Ok(self.deleted.next().map(BacklogPage::from)),
                },
            };
            let (tenant, store) = (self.range.tenant, &self.state.store);
            let events =
                store.list_events(tenant, &session.session, after, limits::EVENTS_PAGE).await?.events;
            // An empty page: the session has been deleted, or has been read completely.
            let Some(last) = events.last().map(|event| event.seq) else { continue };
            let directory =
                Directory { project: session.project.clone(), name: session.project_name.clone() };
            let id = session.session.clone();
            if last < session.seq {
                self.rest = Some(SessionRest { session, after: last });
            }
            return Ok(Some(BacklogPage { session: id, directory: Arc::new(directory), events }));
        }
    }

    async fn begin(&self, session: FeedEntry) -> Result<SessionRest, Error> {
        let BacklogRange { tenant, since, .. } = &self.range;
        let store = &self.state.store;
        let first = store.find_first_since(*tenant, &session.session, since.horizon).await?;
        let after = first.map_or(session.seq, |first| first.saturating_sub(1));
        let after = after.max(since.sent(&session.session, session.seq));
        Ok(SessionRest { session, after })
    }
}
