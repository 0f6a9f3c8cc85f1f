//! The stream of one subscriber to all sessions of a tenant or of a project: live from the feed, and missed events from Postgres.

use super::{
    backlog::{Backlog, BacklogRange},
    bounded::{queue, ring},
    cursor::TenantCursor,
    event::{Fragment, StreamEvent},
    feed::Feeds,
    progress::Progress,
    update::{Content, Interest, Update},
};
use crate::{
    errors::{error::Error, invalid::Invalid},
    memory::{room::StreamRoom, taken_room::HeldRoom},
    state::State,
};
use bus::feed::Notice;
use domain::{
    ids::{ProjectId, SessionId},
    limits,
};
use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};
use store::log::feed::Horizon;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep},
};

/// Sessions that a resumed stream catches up on. Beyond that, it is cheaper for the client to read them again. Beyond it: `cursor_too_old`.
const RESUMED_SESSIONS_MAX: usize = 10_000;

#[derive(Debug, Clone)]
pub(crate) struct TenantSubscription {
    /// The room of the stream, which also names its tenant.
    pub(crate) room: StreamRoom,
    /// The name of the subscriber's key.
    pub(crate) reader: String,
    /// `None`: all projects.
    pub(crate) project: Option<ProjectId>,
    /// `None`: from now on.
    pub(crate) since: Option<TenantCursor>,
}

/// One item for a subscriber.
#[derive(Debug, Clone)]
pub(crate) struct TenantItem {
    pub(crate) session: Option<SessionId>,
    pub(crate) project: Option<ProjectId>,
    pub(crate) content: TenantContent,
    /// The cursor for resuming after this item.
    pub(crate) cursor: Arc<TenantCursor>,
}

#[derive(Debug, Clone)]
pub(crate) enum TenantContent {
    Event(StreamEvent),
    Fragment(Fragment),
    Notice(Notice),
    Heartbeat,
}

impl TenantContent {
    fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => event.bytes(),
            Self::Fragment(fragment) => fragment.bytes(),
            Self::Notice(notice) => size_of::<Self>() + notice.properties.get().len(),
            Self::Heartbeat => size_of::<Self>(),
        }
    }
}

/// The items of a stream, for its subscriber.
pub(crate) type TenantItems = queue::Receiver<Result<TenantItem, Error>>;

/// Begins a stream. It ends when the subscriber leaves, or with `gateway_stopping`.
///
/// # Errors
/// `cursor_invalid`, `cursor_too_old`, `store_unavailable`.
pub(crate) async fn subscribe(
    state: &State,
    feeds: &Feeds,
    subscription: TenantSubscription,
) -> Result<TenantItems, Error> {
    let (feed, updates) = feeds.join(state, subscription.room.tenant()).await;
    let now = feed.horizon();
    let cursor = subscription.since.clone().unwrap_or_else(|| TenantCursor::at(now));
    if cursor.horizon > now {
        return Err(Invalid::Cursor.because("the cursor is ahead of every event"));
    }
    let (items, receiver) = queue::channel(subscription.room.queues());
    let cursor = Arc::new(cursor);
    let interest = Interest::of(subscription.project.clone());
    let stream = Stream { state: state.clone(), subscription, interest, items, seen: HashMap::new(), cursor };
    let backlog = match stream.subscription.since {
        Some(_) => Some(stream.backlog().await?),
        None => None,
    };
    tokio::spawn(async move {
        stream.run(backlog, now, updates).await;
        // Held as long as its subscriber exists.
        drop(feed);
    });
    Ok(receiver)
}

struct Stream {
    state: State,
    subscription: TenantSubscription,
    interest: Interest,
    items: queue::Sender<Result<TenantItem, Error>>,
    /// Positions up to which sessions were read from Postgres.
    seen: HashMap<SessionId, u64>,
    cursor: Arc<TenantCursor>,
}

impl Stream {
    async fn run(mut self, backlog: Option<Backlog>, now: Horizon, updates: ring::Receiver<Update>) {
        if let Err(error) = self.follow(backlog, now, updates).await
            && self.items.send(Err(error), 0).await.is_err()
        {
            tracing::debug!("the subscriber left before it got the error that ends its stream");
        }
    }

    async fn follow(
        &mut self,
        backlog: Option<Backlog>,
        now: Horizon,
        mut updates: ring::Receiver<Update>,
    ) -> Result<(), Error> {
        if let Some(backlog) = backlog {
            Box::pin(self.resume(backlog, now)).await?;
        }
        let period = Duration::from_millis(limits::STREAM_HEARTBEAT_MS);
        let (shutdown, items) = (self.state.shutdown.clone(), self.items.clone());
        // Pinned across all rounds, as in `subscription`.
        let (mut stopping, mut left) = (pin!(shutdown.cancelled()), pin!(items.closed()));
        let mut beat = pin!(sleep(period));
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => return Err(Error::GatewayStopping),
                () = &mut left => return Ok(()),
                () = &mut beat => {
                    self.send_heartbeat().await?;
                    beat.as_mut().reset(Instant::now() + period);
                }
                next = updates.recv() => match next {
                    Ok(update) => self.forward(&update).await?,
                    // Too slow for the feed: read the rest from Postgres.
                    Err(RecvError::Lagged(_)) => {
                        updates = updates.resubscribe();
                        let backlog = Box::pin(self.backlog()).await?;
                        let now = self.cursor.horizon;
                        Box::pin(self.resume(backlog, now)).await?;
                    }
                    Err(RecvError::Closed) => return Err(Error::BusUnavailable),
                },
            }
        }
    }

    /// Sends everything that was written since the last item.
    async fn backlog(&self) -> Result<Backlog, Error> {
        let (room, interest) = (self.subscription.room.clone(), self.interest.clone());
        let range = BacklogRange { room, interest, since: (*self.cursor).clone() };
        let backlog = Backlog::open(&self.state, range).await?;
        if backlog.len() > RESUMED_SESSIONS_MAX {
            return Err(Error::CursorTooOld { sessions: backlog.len(), limit: RESUMED_SESSIONS_MAX });
        }
        Ok(backlog)
    }

    /// Sends a backlog. Afterwards the subscriber has everything before `now`.
    async fn resume(&mut self, mut backlog: Backlog, now: Horizon) -> Result<(), Error> {
        let mut progress = Progress::since((*self.cursor).clone());
        while let Some(page) = backlog.next().await? {
            for event in page.events {
                self.seen.insert(page.session.clone(), event.seq);
                progress.send(&page.session, event.seq);
                self.cursor = Arc::clone(progress.cursor());
                let content = TenantContent::Event(event.into());
                let item = self.item(Some(&page.session), Some(&page.directory.project), content);
                self.send(item, page.room.clone()).await;
            }
            if self.items.is_closed() {
                return Ok(());
            }
        }
        progress.reach(now);
        self.cursor = Arc::clone(progress.cursor());
        Ok(())
    }

    async fn forward(&mut self, update: &Update) -> Result<(), Error> {
        if !update.concerns(&self.subscription.reader, &self.interest) {
            return Ok(());
        }
        let session = update.scope.session();
        let last_seq = session.and_then(|session| self.seen.get(session)).copied();
        let is_sent = match &update.content {
            Content::Event { event, .. } => last_seq.is_some_and(|seq| event.seq <= seq),
            Content::Fragment { .. } | Content::Notice(_) => false,
        };
        let held = if is_sent {
            None
        } else {
            let room = &self.subscription.room;
            room.take_for_copy(update.bytes(), || self.send_heartbeat()).await?
        };
        // The cursor moves after the wait: a client that resumes at a heartbeat must still get the update.
        self.cursor = Arc::clone(&update.cursor);
        if is_sent {
            return Ok(());
        }
        let content = match &update.content {
            Content::Event { event, .. } => TenantContent::Event(event.clone().into()),
            Content::Fragment { fragment, .. } => TenantContent::Fragment(fragment.clone()),
            Content::Notice(notice) => TenantContent::Notice(notice.clone()),
        };
        let project = update.scope.directory().map(|directory| &directory.project);
        self.send(self.item(session, project, content), held).await;
        Ok(())
    }

    fn item(
        &self,
        session: Option<&SessionId>,
        project: Option<&ProjectId>,
        content: TenantContent,
    ) -> TenantItem {
        let (session, project) = (session.cloned(), project.cloned());
        TenantItem { session, project, content, cursor: Arc::clone(&self.cursor) }
    }

    async fn send_heartbeat(&self) -> Result<(), Error> {
        self.send(self.item(None, None, TenantContent::Heartbeat), None).await;
        Ok(())
    }

    /// Sends an item, which holds its room. The loop notices when the subscriber has left.
    async fn send(&self, item: TenantItem, held: Option<HeldRoom>) {
        if let Ok(place) = self.items.reserve(item.content.bytes()).await {
            place.fill(Ok(item), held);
        }
    }
}
