//! The event stream of one subscriber to a session: join the line first, then read what is stored and the subscriber lacks, then go live. Gaps are
//! repaired from Postgres, so the subscriber gets each event once and in order.

use super::{
    bounded::{
        pages::{HeldPage, HeldPages},
        queue, ring,
    },
    cursor::Start,
    event::{Fragment, StreamEvent, StreamNotice},
    hub::{Hub, Line, LineEvent},
    open_parts::{OpenParts, TextChange},
};
use crate::{
    errors::{entity::Entity, error::Error, invalid::Invalid},
    memory::{room::StreamRoom, taken_room::HeldRoom},
    state::State,
};
use domain::{event, ids::SessionId, limits};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{sync::broadcast::error::RecvError, time::Instant};

/// Poll interval for the stored text that fills a hole.
pub(crate) const REPAIR_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    /// The room of the stream, which also names its tenant.
    pub(crate) room: StreamRoom,
    pub(crate) session: SessionId,
    pub(crate) start: Start,
    /// End after an idle event at this position or later.
    pub(crate) until_idle_after: Option<u64>,
}

/// One item for a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Event(StreamEvent),
    Fragment(Fragment),
    Notice(StreamNotice),
    /// The stream is alive. The position is that of the newest known event.
    Heartbeat(u64),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => event.bytes(),
            Self::Fragment(fragment) => fragment.bytes(),
            Self::Notice(notice) => notice.bytes(),
            Self::Heartbeat(_) => size_of::<Self>(),
        }
    }
}

/// The items of a stream, for its subscriber.
pub(crate) type Items = queue::Receiver<Result<Item, Error>>;

/// Begins a stream. It ends when the subscriber leaves, at the requested idle event, or with `gateway_stopping`.
///
/// # Errors
/// `session_not_found`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn subscribe(state: &State, hub: &Hub, subscription: Subscription) -> Result<Items, Error> {
    // Join before reading: every later commit then arrives over NATS, or is found by the poll while NATS is away.
    let tenant = subscription.room.tenant();
    let (line, events) = hub.join(tenant, &subscription.session).await;
    let (head, start, missed) = match subscription.start {
        Start::Now => {
            let head = state.store.get_head(tenant, &subscription.session).await?;
            (head, head.seq, None)
        }
        Start::After(seq) => {
            let Subscription { room, session, .. } = subscription.clone();
            let (head, pages) = HeldPages::open(room, &state.store, session, seq).await?;
            if seq > head.seq {
                let message = format!("the cursor is ahead of the session, which has {} events", head.seq);
                return Err(Invalid::Cursor.because(message));
            }
            (head, seq, (seq < head.seq).then(|| Box::new(pages)))
        }
    };
    // Everything later arrives over the line.
    let gap = Gap { events: missed.is_some(), open_parts: !head.is_idle };
    let (items, receiver) = queue::channel(subscription.room.queues());
    let stream = Stream {
        state: state.clone(),
        subscription,
        items,
        seen: start,
        head: head.seq,
        epoch: head.epoch,
        open: OpenParts::default(),
        missed,
        _line: line,
    };
    // Boxed: a future keeps a second place for each value that it is called with.
    tokio::spawn(Box::new(stream).run(events, gap));
    Ok(receiver)
}

struct Stream {
    state: State,
    subscription: Subscription,
    items: queue::Sender<Result<Item, Error>>,
    /// Position of the last event that was sent.
    seen: u64,
    /// Position of the newest known event.
    head: u64,
    /// The newest epoch that an event reported. The stream drops deltas of older loops.
    epoch: u64,
    open: OpenParts,
    /// The events that the subscriber lacks at the beginning.
    missed: Option<Box<HeldPages>>,
    /// Held to keep the line alive.
    _line: Arc<Line>,
}

/// Stored data that a subscriber may lack.
#[derive(Debug, Clone, Copy)]
struct Gap {
    events: bool,
    /// The text of parts that are not complete.
    open_parts: bool,
}

enum StreamEnd {
    /// The subscriber has what it asked for, or it disconnected.
    Complete,
    /// With an error for the subscriber.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for StreamEnd {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Stream {
    async fn run(mut self: Box<Self>, events: ring::Receiver<LineEvent>, gap: Gap) {
        let Err(end) = self.follow(events, gap).await;
        if let StreamEnd::Failed(error) = end
            && self.items.send(Err(error), 0).await.is_err()
        {
            tracing::debug!("the subscriber left before it got the error that ends its stream");
        }
    }

    async fn follow(
        &mut self,
        mut events: ring::Receiver<LineEvent>,
        gap: Gap,
    ) -> Result<std::convert::Infallible, StreamEnd> {
        self.read(gap).await?;
        let (shutdown, items) = (self.state.shutdown.clone(), self.items.clone());
        // Pinned across all rounds: registering and cancelling a wait costs as much as delivering an event.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(items.closed()));
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (mut beat, mut repair_at) = (pin!(tokio::time::sleep(period)), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => return Err(StreamEnd::Failed(Error::GatewayStopping)),
                () = &mut left => return Err(StreamEnd::Complete),
                next = events.recv() => match next {
                    Ok(event) => self.take(&event).await?,
                    // Too slow for the line: read the rest from Postgres.
                    Err(RecvError::Lagged(_)) => self.read(Gap { events: true, open_parts: true }).await?,
                    Err(RecvError::Closed) => return Err(StreamEnd::Failed(Error::BusUnavailable)),
                },
                () = &mut beat => {
                    Box::pin(self.send_heartbeat()).await?;
                    beat.as_mut().reset(Instant::now() + period);
                }
                () = tokio::time::sleep_until(repair_at), if self.open.has_holes() => {
                    Box::pin(self.send_open_parts()).await?;
                    repair_at = Instant::now() + REPAIR_INTERVAL;
                }
            }
        }
    }

    async fn take(&mut self, event: &LineEvent) -> Result<(), StreamEnd> {
        match event {
            LineEvent::Event(event, _) if event.seq <= self.seen => Ok(()),
            LineEvent::Event(event, text) if event.seq == self.seen + 1 => {
                if let Some(change) = text {
                    self.open.change(change.clone());
                }
                let room = &self.subscription.room;
                let held = room.take_for_copy(event.bytes(), || self.send_heartbeat()).await?;
                self.send_event(event.clone(), held).await
            }
            LineEvent::Head(seq) if *seq <= self.seen => Ok(()),
            LineEvent::Event(..) | LineEvent::Head(_) => Box::pin(self.catch_up()).await,
            LineEvent::Delta(delta) if delta.epoch < self.epoch => Ok(()),
            LineEvent::Delta(delta) => {
                for fragment in self.open.add_delta(delta) {
                    self.send(Item::Fragment(fragment)).await?;
                }
                Ok(())
            }
            LineEvent::Notice(notice) => self.send(Item::Notice(notice.clone())).await,
            LineEvent::Gone => Err(StreamEnd::Failed(Error::NotFound(Entity::Session))),
            LineEvent::Closed => Err(StreamEnd::Failed(Error::BusUnavailable)),
        }
    }

    /// Sends the stored events and text that the subscriber lacks. Reading takes far more memory than waiting, and nearly all streams wait:
    /// the future is on the heap and freed at once.
    async fn read(&mut self, gap: Gap) -> Result<(), StreamEnd> {
        Box::pin(async {
            if gap.events {
                self.catch_up().await?;
            }
            if gap.open_parts {
                self.send_open_parts().await?;
            }
            Ok(())
        })
        .await
    }

    /// Sends the stored events after the last one that was sent.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        let mut pages = self.missed.take().unwrap_or_else(|| {
            let Subscription { room, session, .. } = self.subscription.clone();
            Box::new(HeldPages::after(room, &self.state.store, session, self.seen))
        });
        while let Some(HeldPage { events, room }) = pages.next().await? {
            for event in events {
                let event = StreamEvent::from(event);
                if let Some(change) = TextChange::of(&event.kind, &event.properties) {
                    self.open.change(change);
                }
                self.send_event(event, Some(room.clone())).await?;
            }
        }
        Ok(())
    }

    /// Sends the stored text of open parts to a late joiner. Text is stored shortly after it is streamed, so there can be a hole
    /// in between. The stream fills the hole when the worker has stored the rest.
    async fn send_open_parts(&mut self) -> Result<(), StreamEnd> {
        let Subscription { room, session, .. } = &self.subscription;
        let chunks = self.state.store.list_chunks(room.tenant(), session, self.epoch).await?;
        for chunk in chunks {
            for fragment in self.open.add_chunk(&chunk) {
                self.send(Item::Fragment(fragment)).await?;
            }
        }
        Ok(())
    }

    async fn send_event(&mut self, event: StreamEvent, held: Option<HeldRoom>) -> Result<(), StreamEnd> {
        self.seen = event.seq;
        self.head = self.head.max(event.seq);
        self.epoch = self.epoch.max(event.epoch);
        let after = self.subscription.until_idle_after;
        let is_last = event.kind == event::IDLE && after.is_some_and(|after| event.seq >= after);
        self.reserve(event.bytes()).await?.fill(Ok(Item::Event(event)), held);
        if is_last { Err(StreamEnd::Complete) } else { Ok(()) }
    }

    async fn send_heartbeat(&self) -> Result<(), StreamEnd> {
        self.send(Item::Heartbeat(self.head)).await
    }

    async fn send(&self, item: Item) -> Result<(), StreamEnd> {
        self.reserve(item.bytes()).await?.fill(Ok(item), None);
        Ok(())
    }

    async fn reserve(&self, bytes: usize) -> Result<queue::QueueSlot<'_, Result<Item, Error>>, StreamEnd> {
        self.items.reserve(bytes).await.map_err(|queue::Left| StreamEnd::Complete)
    }
}
