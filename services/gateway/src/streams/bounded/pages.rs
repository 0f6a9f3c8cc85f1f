//! The stored events of a session for one reader, page by page. A page takes room until the reader has read its events.

use crate::{
    errors::error::Error,
    memory::{room::StreamRoom, taken_room::HeldRoom},
};
use domain::{event::StoredEvent, ids::SessionId, limits};
use futures::FutureExt as _;
use store::{
    Store,
    log::events::{Head, LogPage, Pages},
};

/// Bytes of a page: the last event may exceed the bytes at which it ends, by less than another page.
const PAGE_BYTES: usize = 2 * limits::EVENTS_PAGE_BYTES as usize;

/// The pages after a position.
pub(crate) struct HeldPages {
    pages: Pages,
    room: StreamRoom,
    /// The room of the first page, if that was read with the head.
    first: Option<HeldRoom>,
}

/// Consecutive events, oldest first; never empty.
pub(crate) struct HeldPage {
    pub(crate) events: Vec<StoredEvent>,
    pub(crate) room: HeldRoom,
}

impl HeldPages {
    pub(crate) fn after(room: StreamRoom, store: &Store, session: SessionId, position: u64) -> Self {
        Self { pages: store.event_pages(room.tenant(), session, position), room, first: None }
    }

    /// Reads the head of the log and, if there is room for it now, the first page with it: a stream without new events needs no room, and does not wait for it.
    ///
    /// # Errors
    /// `session_not_found`, `store_unavailable`.
    pub(crate) async fn open(
        room: StreamRoom,
        store: &Store,
        session: SessionId,
        position: u64,
    ) -> Result<(Head, Self), Error> {
        let Some(Ok(first)) = room.take(PAGE_BYTES).now_or_never() else {
            let head = store.get_head(room.tenant(), &session).await?;
            return Ok((head, Self::after(room, store, session, position)));
        };
        let (head, pages) = store.open_event_pages(room.tenant(), session, position).await?;
        Ok((head, Self { pages, room, first: Some(first) }))
    }

    /// Waits for room and reads the next page; `None` at the end of the log. The caller gives the room of the previous page to what it
    /// sends, and does not keep it itself: a stream that waits for its own room would wait in vain.
    ///
    /// # Errors
    /// `requests_too_many`, `store_unavailable`.
    pub(crate) async fn next(&mut self) -> Result<Option<HeldPage>, Error> {
        loop {
            let room = match self.first.take() {
                Some(first) => first,
                None => self.room.take(PAGE_BYTES).await?,
            };
            let large = match self.pages.next().await? {
                None => return Ok(None),
                Some(LogPage::Events(events)) => return Ok(Some(HeldPage { events, room })),
                Some(LogPage::Large(large)) => large,
            };
            drop(room);
            let room = self.room.take(large.bytes).await?;
            // A compaction may have emptied it meanwhile.
            if let Some(event) = self.pages.read(large).await? {
                return Ok(Some(HeldPage { events: vec![event], room }));
            }
        }
    }
}
