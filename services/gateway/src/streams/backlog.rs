//! The events that the sessions of a tenant wrote since a moment, for streams that resume: read page by page from Postgres.

use super::{
    bounded::pages::{HeldPage, HeldPages},
    cursor::TenantCursor,
    update::{Directory, Interest},
};
use crate::{
    errors::error::Error,
    memory::{room::StreamRoom, taken_room::HeldRoom},
    state::State,
};
use domain::{event::StoredEvent, ids::SessionId};
use std::{sync::Arc, vec};
use store::{log::feed::FeedEntry, session::deletion::Tombstone};

#[derive(Debug, Clone)]
pub(crate) struct BacklogRange {
    /// The room of the stream, which also names its tenant.
    pub(crate) room: StreamRoom,
    pub(crate) interest: Interest,
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
    session: SessionId,
    directory: Arc<Directory>,
    pages: HeldPages,
}

/// Events of one session, in order.
pub(crate) struct BacklogPage {
    pub(crate) session: SessionId,
    pub(crate) directory: Arc<Directory>,
    pub(crate) events: Vec<StoredEvent>,
    /// The room of the events, for what the stream sends of them; `None`: they are small.
    pub(crate) room: Option<HeldRoom>,
}

impl From<Tombstone> for BacklogPage {
    fn from(tombstone: Tombstone) -> Self {
        let events = vec![tombstone.event()];
        let directory = Arc::new(Directory::from(&tombstone));
        Self { session: tombstone.session, directory, events, room: None }
    }
}

impl Backlog {
    /// Finds the sessions that wrote events or were deleted.
    ///
    /// # Errors
    /// `store_unavailable`.
    pub(crate) async fn open(state: &State, range: BacklogRange) -> Result<Self, Error> {
        let BacklogRange { room, interest, since } = &range;
        let (tenant, horizon) = (room.tenant(), since.horizon);
        let (_, mut sessions) = state.store.list_written(tenant, horizon).await?;
        sessions.retain(|written| {
            interest.includes(&Directory::from(written))
                && since.sent(&written.session, written.seq) < written.seq
        });
        // Read deletions after the sessions: a deletion in between may be found twice, but never missed.
        let mut deleted = state.store.list_deleted(tenant, horizon).await?;
        deleted.retain(|tombstone| {
            let seq = tombstone.event().seq;
            interest.includes(&Directory::from(tombstone)) && since.sent(&tombstone.session, seq) < seq
        });
        let (sessions, deleted) = (sessions.into_iter(), deleted.into_iter());
        Ok(Self { state: state.clone(), range, sessions, deleted, rest: None })
    }

    /// The number of sessions still to read.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.deleted.len()
    }

    /// Waits for room and reads the next page; `None` at the end.
    ///
    /// # Errors
    /// Those of [`HeldPages::next`].
    pub(crate) async fn next(&mut self) -> Result<Option<BacklogPage>, Error> {
        loop {
            let mut rest = match self.rest.take() {
                Some(rest) => rest,
                None => match self.sessions.next() {
                    Some(session) => self.begin(session).await?,
                    None => return Ok(self.deleted.next().map(BacklogPage::from)),
                },
            };
            // No page: the session has been deleted, or has been read completely.
            let Some(HeldPage { events, room }) = rest.pages.next().await? else { continue };
            let (session, directory) = (rest.session.clone(), Arc::clone(&rest.directory));
            self.rest = Some(rest);
            return Ok(Some(BacklogPage { session, directory, events, room: Some(room) }));
        }
    }

    async fn begin(&self, entry: FeedEntry) -> Result<SessionRest, Error> {
        let directory = Arc::new(Directory::from(&entry));
        let FeedEntry { session, seq, .. } = entry;
        let BacklogRange { room, since, .. } = &self.range;
        let store = &self.state.store;
        let first = store.find_first_since(room.tenant(), &session, since.horizon).await?;
        let after = first.map_or(seq, |first| first.saturating_sub(1)).max(since.sent(&session, seq));
        let pages = HeldPages::after(room.clone(), store, session.clone(), after);
        Ok(SessionRest { session, directory, pages })
    }
}
