//! What is heard of sessions: once for each that somebody follows here, however many follow it. A line repairs gaps from Postgres
//! for all its followers; who is too slow for it, and who joins it late, catches up alone.

use crate::shared::Shared;
use bus::{
    Bus,
    feed::{Delta, News, Reader},
};
use domain::{
    event::StoredEvent,
    ids::{SessionId, TenantId},
    limits,
    mutant::{self, Mutant},
};
use rpc::v1;
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use store::{Store, log::events::Head};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

/// Time between two looks at the heads of sessions while NATS is away: text then advances in the steps of stored events.
pub(crate) const LOOK_WITHOUT_NATS: Duration = Duration::from_millis(300);
/// Time between two looks at the heads otherwise: finds a lost last message.
const LOOK_WITH_NATS: Duration = Duration::from_secs(5);
/// Sessions whose heads are asked for together.
const HEADS_MAX: usize = 1_000;
/// News that wait for one slow follower, beyond which it catches up from Postgres. Each line has room for them from its
/// beginning, and there are thousands of lines.
const WAITING_MAX: usize = 64;

/// The lines of this gateway; clones are cheap.
#[derive(Clone)]
pub(crate) struct Hub {
    lines: Arc<Lines>,
    store: Store,
    bus: Bus,
    _looker: Arc<AbortOnDropHandle<()>>,
}

type Lines = Shared<(TenantId, SessionId), Line>;

/// What is heard of one session. Ends with its last follower.
pub(crate) struct Line {
    heard: broadcast::Sender<Arc<Heard>>,
    /// What the last look at the head found.
    head: watch::Sender<Looked>,
    is_joined: Arc<AtomicBool>,
    /// Whether whatever is committed from now on is either read from Postgres afterwards or heard.
    has_begun: watch::Receiver<bool>,
    _task: AbortOnDropHandle<()>,
}

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A durable event.
    Event(v1::Event),
    /// A fragment of a part.
    Delta(Delta),
    /// There are events up to here, which the line could not read.
    Head(u64),
    /// The session is gone.
    Gone,
    /// Nothing more will be heard.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Never,
    Head(u64),
    Gone,
}

impl Hub {
    pub(crate) fn new(store: Store, bus: Bus) -> Self {
        let lines = Arc::<Lines>::default();
        let looker = tokio::spawn(look(Arc::downgrade(&lines), store.clone(), bus.clone()));
        Self { lines, store, bus, _looker: Arc::new(AbortOnDropHandle::new(looker)) }
    }

    /// Follows a session: what is committed from now on is told to the receiver, as long as the line is kept.
    pub(crate) async fn join(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> (Arc<Line>, broadcast::Receiver<Arc<Heard>>) {
        let line = self.lines.join((tenant, session.clone()), || self.start(tenant, session));
        let receiver = line.heard.subscribe();
        // A line that ended says so to the receiver.
        drop(line.has_begun.clone().wait_for(|begun| *begun).await);
        (line, receiver)
    }

    fn start(&self, tenant: TenantId, session: &SessionId) -> Line {
        let (heard, (head, looked)) = (broadcast::Sender::new(WAITING_MAX), watch::channel(Looked::Never));
        let (begun, has_begun) = watch::channel(false);
        let is_joined = Arc::<AtomicBool>::default();
        let listener = Listener {
            store: self.store.clone(),
            tenant,
            session: session.clone(),
            heard: heard.clone(),
            known: 0,
            is_joined: Arc::clone(&is_joined),
        };
        let task = tokio::spawn(listener.run(self.bus.clone(), begun, looked));
        Line { heard, head, is_joined, has_begun, _task: AbortOnDropHandle::new(task) }
    }
}

/// Looks at the heads of all sessions that are followed, which costs one question for each tenant, whoever follows.
async fn look(lines: Weak<Lines>, store: Store, bus: Bus) {
    let mut looked_at = Instant::now();
    while let Some(lines) = lines.upgrade() {
        let is_due = looked_at.elapsed() >= LOOK_WITH_NATS || bus.ping_nats().is_err();
        if is_due {
            looked_at = Instant::now();
        }
        for (tenant, lines) in followed(&lines, is_due) {
            for lines in lines.chunks(HEADS_MAX) {
                if let Err(error) = look_at(&store, tenant, lines).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "no look at the heads");
                }
            }
        }
        drop(lines);
        tokio::time::sleep(LOOK_WITHOUT_NATS).await;
    }
}

/// The lines of each tenant, all of them or those that do not hear yet.
fn followed(lines: &Lines, all: bool) -> HashMap<TenantId, Vec<(SessionId, Arc<Line>)>> {
    let mut found = HashMap::<_, Vec<_>>::new();
    let wanted = |line: &Line| all || !line.is_joined.load(Ordering::Relaxed);
    for ((tenant, session), line) in lines.all(wanted) {
        found.entry(tenant).or_default().push((session, line));
    }
    found
}

async fn look_at(
    store: &Store,
    tenant: TenantId,
    lines: &[(SessionId, Arc<Line>)],
) -> Result<(), store::error::Error> {
    let sessions: Vec<&SessionId> = lines.iter().map(|(session, _)| session).collect();
    let heads: HashMap<SessionId, Head> = store.list_heads(tenant, &sessions).await?.into_iter().collect();
    for (session, line) in lines {
        let found = heads.get(session).map_or(Looked::Gone, |head| Looked::Head(head.seq));
        line.head.send_if_modified(|looked| std::mem::replace(looked, found) != found);
    }
    Ok(())
}

/// Hears of one session, and tells.
struct Listener {
    store: Store,
    tenant: TenantId,
    session: SessionId,
    heard: broadcast::Sender<Arc<Heard>>,
    /// Position of the newest event that was told; 0: none was.
    known: u64,
    is_joined: Arc<AtomicBool>,
}

impl Listener {
    async fn run(mut self, bus: Bus, begun: watch::Sender<bool>, mut looked: watch::Receiver<Looked>) {
        match Box::pin(bus.read(self.tenant, &self.session)).await {
            Ok(reader) => {
                self.is_joined.store(reader.is_joined(), Ordering::Relaxed);
                begun.send_replace(true);
                self.follow(reader, &mut looked).await;
            }
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "subscribe"),
        }
        self.tell(Heard::Closed);
        begun.send_replace(true);
    }

    /// Until the connection is closed for good.
    async fn follow(&mut self, mut reader: Reader, looked: &mut watch::Receiver<Looked>) {
        loop {
            tokio::select! {
                news = reader.next() => match news {
                    Some(news) => self.take(news).await,
                    None => return,
                },
                changed = looked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let found = *looked.borrow_and_update();
                    match found {
                        Looked::Never => {}
                        Looked::Head(_) if mutant::on(Mutant::HeadUnchecked) => {}
                        Looked::Head(seq) => self.reach(seq).await,
                        Looked::Gone => self.tell(Heard::Gone),
                    }
                }
            }
        }
    }

    async fn take(&mut self, news: News) {
        match news {
            News::Event(event) if event.seq <= self.known => {}
            News::Event(event) => {
                if self.known > 0 && event.seq > self.known + 1 && !mutant::on(Mutant::GapUnrepaired) {
                    self.reach(event.seq - 1).await;
                }
                self.tell_event(event.into());
            }
            News::Delta(delta) => self.tell(Heard::Delta(delta)),
            News::Beat { .. } if mutant::on(Mutant::HeadUnchecked) => {}
            News::Beat { seq, .. } => self.reach(seq).await,
            // Followers of a session follow its log.
            News::Notice(_) => {}
            News::Joined => {
                self.is_joined.store(true, Ordering::Relaxed);
                match Box::pin(self.store.get_head(self.tenant, &self.session)).await {
                    Ok(head) => self.reach(head.seq).await,
                    Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the next look"),
                }
            }
        }
    }

    /// Tells the events up to a position that were not heard, or, if they cannot be read, that there are some.
    async fn reach(&mut self, seq: u64) {
        while self.known < seq {
            // In a room of its own, which is given back: thousands of lines wait here, and few read.
            let missed = Box::pin(self.missed()).await.unwrap_or_else(|error| {
                tracing::debug!(error = &error as &dyn std::error::Error, "followers catch up alone");
                vec![]
            });
            if missed.is_empty() {
                self.known = seq;
                self.tell(Heard::Head(seq));
            }
            missed.into_iter().for_each(|event| self.tell_event(event));
        }
    }

    /// A page of what was not told. A new line owes nobody the past: its followers know where they are.
    async fn missed(&self) -> Result<Vec<StoredEvent>, store::error::Error> {
        if self.known == 0 {
            return Ok(vec![]);
        }
        self.store.list_events(self.tenant, &self.session, self.known, limits::EVENTS_PAGE).await
    }

    fn tell_event(&mut self, event: StoredEvent) {
        self.known = event.seq;
        self.tell(Heard::Event(crate::events::to_wire(event)));
    }

    fn tell(&self, heard: Heard) {
        // The last follower may be leaving.
        drop(self.heard.send(Arc::new(heard)));
    }
}
