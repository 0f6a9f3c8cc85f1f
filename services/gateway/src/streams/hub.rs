//! The lines of this gateway: one for each session with a subscribed client, however many clients there are. A line receives
//! NATS messages, and repairs gaps from Postgres for all its followers. A follower that is too slow, or joins late, catches up
//! alone.

use super::{
    bounded::{
        deltas::{DELTA_LOOK, DELTA_WAIT},
        ring::{self, Bounds},
    },
    event::{StreamEvent, StreamNotice},
    open_parts::TextChange,
    shared::SharedMap,
};
use crate::{
    memory::room::{QueueRoom, Room},
    state::State,
};
use bus::{
    Bus,
    feed::{Delta, News, Reader},
};
use chassis::tasks;
use domain::{
    event::{StoredEvent, WORKSPACE_PROGRESS},
    ids::{SessionId, TenantId},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use store::{
    Store,
    log::events::{Head, LogPage},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

/// Poll interval for the heads of sessions while NATS is away: text then advances in the steps of stored events.
pub(crate) const POLL_WITHOUT_NATS: Duration = Duration::from_millis(300);
/// Poll interval for the heads otherwise: finds a last message that NATS lost.
const POLL_WITH_NATS: Duration = Duration::from_secs(5);
/// Sessions whose heads one query reads. More sessions take several queries.
const HEADS_MAX: usize = 1_000;
/// Pending events of one slow follower. With more, it catches up from Postgres. Each line reserves room for their number from its
/// start, and there are thousands of lines.
const PENDING: Bounds = Bounds { items: 64, bytes: 1024 * 1024 };

/// The lines of this gateway; clones are cheap.
#[derive(Clone)]
pub(crate) struct Hub {
    lines: Arc<Lines>,
    store: Store,
    bus: Bus,
    room: Arc<Room>,
    _poll: Arc<AbortOnDropHandle<()>>,
}

type Lines = SharedMap<(TenantId, SessionId), Line>;

/// The events of one session. Ends with its last follower.
pub(crate) struct Line {
    events: ring::Sender<LineEvent>,
    /// The result of the last poll.
    head: watch::Sender<HeadState>,
    is_joined: Arc<AtomicBool>,
    /// True if every later commit either arrives over NATS, or is visible to a read from Postgres that starts now.
    has_begun: watch::Receiver<bool>,
    _task: AbortOnDropHandle<()>,
}

/// The items that a line sends to its followers.
#[derive(Debug)]
pub(crate) enum LineEvent {
    /// A durable event, with what it does to streamed text: read once for all followers.
    Event(StreamEvent, Option<TextChange>),
    /// A fragment of a part.
    Delta(Delta),
    /// What the loop waits for.
    Notice(StreamNotice),
    /// Events up to this position exist that the line could not read.
    Head(u64),
    Gone,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadState {
    /// Not polled yet.
    Unknown,
    At(u64),
    Gone,
}

impl Hub {
    /// A hub without lines.
    pub(crate) fn new(state: &State) -> Self {
        let (store, bus) = (state.store.clone(), state.bus.clone());
        let lines = Arc::<Lines>::default();
        let poll = tasks::spawn_owned("heads", poll(Arc::downgrade(&lines), store.clone(), bus.clone()));
        Self { lines, store, bus, room: Arc::clone(&state.room), _poll: Arc::new(poll) }
    }

    /// Subscribes to a session. The receiver gets everything that is committed from now on, as long as the line is
    /// held.
    pub(crate) async fn join(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> (Arc<Line>, ring::Receiver<LineEvent>) {
        let line = self.lines.join((tenant, session.clone()), || self.start(tenant, session));
        let receiver = line.events.subscribe();
        // An error means that the line has ended. The receiver reports that itself.
        drop(line.has_begun.clone().wait_for(|begun| *begun).await);
        (line, receiver)
    }

    fn start(&self, tenant: TenantId, session: &SessionId) -> Line {
        let events = ring::Sender::new(PENDING, QueueRoom::new(Arc::clone(&self.room), tenant));
        let (head, heads) = watch::channel(HeadState::Unknown);
        let (begun, has_begun) = watch::channel(false);
        let is_joined = Arc::<AtomicBool>::default();
        let listener = Listener {
            store: self.store.clone(),
            tenant,
            session: session.clone(),
            events: events.clone(),
            sent: 0,
            is_joined: Arc::clone(&is_joined),
        };
        let task = tasks::spawn_owned("line", listener.run(self.bus.clone(), begun, heads));
        Line { events, head, is_joined, has_begun, _task: task }
    }
}

/// Polls the heads of all sessions with a line.
async fn poll(lines: Weak<Lines>, store: Store, bus: Bus) {
    let mut polled_at = Instant::now();
    while let Some(lines) = lines.upgrade() {
        let is_due = polled_at.elapsed() >= POLL_WITH_NATS || bus.ping_nats().is_err();
        if is_due {
            polled_at = Instant::now();
        }
        // Every line of this gateway depends on this task, so a panic ends only one round.
        tasks::catch_panic("heads", poll_all(&lines, &store, is_due)).await;
        drop(lines);
        sleep(POLL_WITHOUT_NATS).await;
    }
}

/// Polls with one query for each tenant and page of sessions.
async fn poll_all(lines: &Lines, store: &Store, is_due: bool) {
    for (tenant, lines) in by_tenant(lines, is_due) {
        for lines in lines.chunks(HEADS_MAX) {
            if let Err(error) = poll_heads(store, tenant, lines).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot poll heads");
            }
        }
    }
}

/// The lines of each tenant: all of them, or those without a NATS subscription yet.
fn by_tenant(lines: &Lines, all: bool) -> HashMap<TenantId, Vec<(SessionId, Arc<Line>)>> {
    let mut tenants = HashMap::<_, Vec<_>>::new();
    let passes = |line: &Line| all || !line.is_joined.load(Ordering::Relaxed);
    for ((tenant, session), line) in lines.filter(passes) {
        tenants.entry(tenant).or_default().push((session, line));
    }
    tenants
}

async fn poll_heads(
    store: &Store,
    tenant: TenantId,
    lines: &[(SessionId, Arc<Line>)],
) -> Result<(), store::error::Error> {
    let sessions: Vec<&SessionId> = lines.iter().map(|(session, _)| session).collect();
    let heads: HashMap<SessionId, Head> = store.list_heads(tenant, &sessions).await?.into_iter().collect();
    for (session, line) in lines {
        let state = heads.get(session).map_or(HeadState::Gone, |head| HeadState::At(head.seq));
        line.head.send_if_modified(|head| std::mem::replace(head, state) != state);
    }
    Ok(())
}

/// Receives the messages of one session and forwards them.
struct Listener {
    store: Store,
    tenant: TenantId,
    session: SessionId,
    events: ring::Sender<LineEvent>,
    /// Position of the newest forwarded event; 0 before the first.
    sent: u64,
    is_joined: Arc<AtomicBool>,
}

impl Listener {
    async fn run(mut self, bus: Bus, begun: watch::Sender<bool>, mut heads: watch::Receiver<HeadState>) {
        match Box::pin(bus.read(self.tenant, &self.session)).await {
            Ok(reader) => {
                self.is_joined.store(reader.is_joined(), Ordering::Relaxed);
                begun.send_replace(true);
                // After a panic the line ends, and its followers join another one.
                tasks::catch_panic("line", self.follow(reader, &mut heads)).await;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot subscribe to NATS")
            }
        }
        self.send(LineEvent::Closed);
        begun.send_replace(true);
    }

    /// Runs until the connection is closed for good.
    async fn follow(&mut self, mut reader: Reader, heads: &mut watch::Receiver<HeadState>) {
        loop {
            tokio::select! {
                news = reader.next() => match news {
                    Some(news) => self.take(news).await,
                    None => return,
                },
                changed = heads.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let head = *heads.borrow_and_update();
                    match head {
                        HeadState::Unknown => {}
                        HeadState::At(seq) => self.reach(seq).await,
                        HeadState::Gone => self.send(LineEvent::Gone),
                    }
                }
            }
        }
    }

    async fn take(&mut self, news: News) {
        match news {
            News::Event(event) if event.seq <= self.sent => {}
            News::Event(event) => {
                if self.sent > 0 && event.seq > self.sent + 1 {
                    self.reach(event.seq - 1).await;
                }
                self.send_event(event.into());
            }
            News::Delta(delta) => {
                self.send(LineEvent::Delta(delta));
                // On the heap, as in `reach`.
                Box::pin(self.wait_for_followers()).await;
            }
            News::Beat { seq, .. } => self.reach(seq).await,
            News::Notice(notice) if notice.kind == WORKSPACE_PROGRESS => {
                self.send(LineEvent::Notice(notice.into()));
            }
            // The others are for clients of a whole directory.
            News::Notice(_) => {}
            News::Joined => {
                self.is_joined.store(true, Ordering::Relaxed);
                match Box::pin(self.store.get_head(self.tenant, &self.session)).await {
                    Ok(head) => self.reach(head.seq).await,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(error, "cannot read the head; the next poll will");
                    }
                }
            }
        }
    }

    /// Waits while followers receive what was sent. The reader joins the deltas that arrive meanwhile.
    async fn wait_for_followers(&self) {
        let until = Instant::now() + DELTA_WAIT;
        while !self.events.is_received() && Instant::now() < until {
            sleep(DELTA_LOOK).await;
        }
    }

    /// Forwards the missed events up to a position or, if they cannot be read, the position.
    async fn reach(&mut self, seq: u64) {
        while self.sent < seq {
            // On the heap, and freed at once: thousands of lines wait here, and few of them read.
            let missed = Box::pin(self.missed()).await.unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "cannot read missed events; followers catch up alone");
                None
            });
            match missed {
                Some(LogPage::Events(events)) => events.into_iter().for_each(|event| self.send_event(event)),
                // Each follower reads it alone, when it has room for it.
                Some(LogPage::Large(event)) => self.send_head(event.seq),
                None => self.send_head(seq),
            }
        }
    }

    /// One page of missed events. A new line replays nothing: its followers know their own positions.
    async fn missed(&self) -> Result<Option<LogPage>, store::error::Error> {
        if self.sent == 0 {
            return Ok(None);
        }
        self.store.event_pages(self.tenant, self.session.clone(), self.sent).next().await
    }

    fn send_head(&mut self, seq: u64) {
        self.sent = seq;
        self.send(LineEvent::Head(seq));
    }

    fn send_event(&mut self, event: StoredEvent) {
        self.sent = event.seq;
        let event = StreamEvent::from(event);
        let text = TextChange::of(&event.kind, &event.properties);
        self.send(LineEvent::Event(event, text));
    }

    fn send(&self, event: LineEvent) {
        let bytes = match &event {
            LineEvent::Event(event, _) => event.bytes(),
            LineEvent::Delta(delta) => size_of::<LineEvent>() + delta.text.len(),
            LineEvent::Notice(notice) => notice.bytes(),
            LineEvent::Head(_) | LineEvent::Gone | LineEvent::Closed => size_of::<LineEvent>(),
        };
        self.events.send(event, bytes);
    }
}
