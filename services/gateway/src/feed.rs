//! The stream over all sessions of a tenant: one for each tenant that somebody follows, shared by all who do. It hears what is
//! said on NATS, repairs every gap of a session from Postgres, and looks by transactions for what was never said, so its
//! subscribers get everything, each session in order; whoever resumes may get something twice.

pub(crate) mod past;
pub(crate) mod subscriber;
pub(crate) mod texts;
pub(crate) mod told;

use crate::{
    events::{MEND, open_parts::OpenParts},
    hub::LOOK_WITHOUT_NATS,
    messages,
    shared::Shared,
    state::State,
};
use bus::feed::{Delta, News, Notice, Subject, TenantReader};
use domain::{
    event::{self, StoredEvent},
    ids::{SessionId, TenantId},
};
use rpc::v1;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use store::{Page, log::feed::Horizon};
use texts::Texts;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;
use told::{Directory, Place, Told, What};

/// Time between two looks for events that nobody told of, while NATS works: also how far a cursor may lag behind.
const LOOK_WITH_NATS: Duration = Duration::from_secs(2);
/// News that wait for one slow subscriber, beyond which it begins anew from Postgres.
const WAITING_MAX: usize = 4_096;
/// Sessions whose place is remembered; of the others it is read again.
const SESSIONS_MAX: usize = 10_000;

/// The feeds that somebody follows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feeds(Arc<Shared<TenantId, Feed>>);

/// The feed of one tenant. Ends with its last follower.
#[derive(Debug)]
pub(crate) struct Feed {
    told: broadcast::Sender<Arc<Told>>,
    horizon: watch::Receiver<Option<Horizon>>,
    /// What was told of the parts that stream.
    pub(crate) texts: Arc<Texts>,
    _task: AbortOnDropHandle<()>,
}

impl Feeds {
    /// Joins the feed of a tenant: what is committed from now on is told to the receiver.
    pub(crate) async fn join(
        &self,
        state: &State,
        tenant: TenantId,
    ) -> (Arc<Feed>, broadcast::Receiver<Arc<Told>>) {
        let feed = self.0.join(tenant, || Feed::start(state, tenant));
        let receiver = feed.told.subscribe();
        // Whoever reads from Postgres before the feed hears would miss what happens in between.
        if feed.horizon.clone().wait_for(Option::is_some).await.is_err() {
            tracing::debug!("a feed ended before it began");
        }
        (feed, receiver)
    }

    /// Tells everybody who follows a tenant here.
    pub(crate) fn tell_all(&self, notice: &Notice) {
        for (_, feed) in self.0.all(|_| true) {
            // Nobody follows yet what has not begun.
            let Some(horizon) = *feed.horizon.borrow() else { continue };
            let (place, what) = (Place::Tenant, What::Notice(notice.clone()));
            // Its last subscriber may be leaving.
            drop(feed.told.send(Arc::new(Told { place, what, horizon })));
        }
    }
}

impl Feed {
    fn start(state: &State, tenant: TenantId) -> Self {
        let texts = Arc::<Texts>::default();
        let (told, (horizon_set, horizon)) = (broadcast::Sender::new(WAITING_MAX), watch::channel(None));
        let teller = Teller {
            state: state.clone(),
            tenant,
            told: told.clone(),
            horizon_set,
            horizon: 0,
            followed: HashMap::new(),
            gone: HashSet::new(),
            texts: Arc::clone(&texts),
        };
        Self { told, horizon, texts, _task: AbortOnDropHandle::new(tokio::spawn(teller.run())) }
    }

    /// Where a stream stands that read everything up to now.
    pub(crate) fn horizon(&self) -> Horizon {
        self.horizon.borrow().unwrap_or_default()
    }
}

struct Teller {
    state: State,
    tenant: TenantId,
    told: broadcast::Sender<Arc<Told>>,
    horizon_set: watch::Sender<Option<Horizon>>,
    horizon: Horizon,
    followed: HashMap<SessionId, Followed>,
    /// The deleted sessions that were told of and may be found again.
    gone: HashSet<SessionId>,
    texts: Arc<Texts>,
}

/// What was told of a session.
struct Followed {
    project: Arc<Directory>,
    seen: u64,
    epoch: u64,
    open: OpenParts,
}

impl Teller {
    async fn run(mut self) {
        loop {
            match self.state.bus.read_tenant(self.tenant).await {
                Ok(reader) => self.follow(reader).await,
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "subscribe"),
            }
            tokio::time::sleep(LOOK_WITH_NATS).await;
        }
    }

    /// Until the connection is closed for good.
    async fn follow(&mut self, mut reader: TenantReader) {
        let (mut look_at, mut mend_at) = (Instant::now(), Instant::now());
        loop {
            let has_holes = self.followed.values().any(|known| known.open.has_holes());
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(mend_at), if has_holes => {
                    if let Err(error) = self.mend().await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "a hole is not filled yet");
                    }
                    mend_at = Instant::now() + MEND;
                }
                () = tokio::time::sleep_until(look_at) => {
                    if let Err(error) = self.look().await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "no look for events");
                    }
                    let hears = reader.is_joined() && self.state.bus.ping_nats().is_ok();
                    look_at = Instant::now() + if hears { LOOK_WITH_NATS } else { LOOK_WITHOUT_NATS };
                }
                news = reader.next() => match news {
                    Some((Some(of), news)) => {
                        if let Err(error) = self.hear(of, news).await {
                            tracing::debug!(error = &error as &dyn std::error::Error, "news waits for the next look");
                        }
                    }
                    Some((None, _)) => look_at = Instant::now(),
                    None => return,
                },
            }
        }
    }

    /// Tells what was written and not told yet, and moves on.
    async fn look(&mut self) -> Result<(), store::error::Error> {
        let is_first = self.horizon == 0;
        // A new feed owes nobody what was before it.
        let since = if is_first { i64::MAX as u64 } else { self.horizon };
        let (horizon, written) = self.state.store.list_written(self.tenant, since).await?;
        for session in written {
            if self.followed.get(&session.session).is_none_or(|known| known.seen < session.seq) {
                self.catch_up(&session.session).await?;
            }
        }
        self.tell_deleted(since).await?;
        self.horizon = horizon;
        self.horizon_set.send_replace(Some(horizon));
        if self.followed.len() > SESSIONS_MAX {
            self.followed.clear();
        }
        Ok(())
    }

    async fn hear(&mut self, of: Subject, news: News) -> Result<(), store::error::Error> {
        let (place, notice) = match (of, news) {
            (Subject::Session(session), news) => return self.take(session, news).await,
            (Subject::Project(project), News::Notice(notice)) => {
                let directory = Directory { project, name: notice.project_name.clone() };
                (Place::Project(Arc::new(directory)), notice)
            }
            (Subject::Tenant, News::Notice(notice)) => (Place::Tenant, notice),
            (Subject::Project(_) | Subject::Tenant, _) => return Ok(()),
        };
        // Before the first look nobody follows yet.
        if self.horizon > 0 {
            self.send(place, What::Notice(notice));
        }
        Ok(())
    }

    async fn take(&mut self, session: SessionId, news: News) -> Result<(), store::error::Error> {
        let known = self.followed.get_mut(&session);
        match news {
            // It has no log any more. What went with it was told with the first of them.
            News::Event(event) if event.kind == event::DELETED && self.gone.contains(&session) => {}
            News::Event(event) if event.kind == event::DELETED => self.tell_deleted(self.horizon).await?,
            News::Event(event) => match known {
                Some(known) if event.seq <= known.seen => {}
                Some(known) if event.seq == known.seen + 1 => {
                    self.tell(&session, event.into());
                }
                Some(_) | None => self.catch_up(&session).await?,
            },
            News::Delta(delta) => {
                if known.is_none() {
                    self.catch_up(&session).await?;
                }
                self.tell_delta(&session, &delta);
            }
            News::Beat { seq, .. } => {
                if known.is_none_or(|known| known.seen < seq) {
                    self.catch_up(&session).await?;
                }
            }
            News::Notice(notice) => {
                if known.is_none() {
                    self.catch_up(&session).await?;
                }
                if let Some(known) = self.followed.get(&session) {
                    let place = Place::Session(session, Arc::clone(&known.project));
                    self.send(place, What::Notice(notice));
                }
            }
            News::Joined => {}
        }
        Ok(())
    }

    /// Tells which sessions are gone. Those of a moment may be found more than once.
    async fn tell_deleted(&mut self, since: Horizon) -> Result<(), store::error::Error> {
        if since == 0 {
            return Ok(());
        }
        let mut gone = HashSet::new();
        for deleted in self.state.store.list_deleted(self.tenant, since).await? {
            self.followed.remove(&deleted.session);
            if !self.gone.contains(&deleted.session) {
                let directory =
                    Directory { project: deleted.project.clone(), name: deleted.project_name.clone() };
                let place = Place::Session(deleted.session.clone(), Arc::new(directory));
                self.send(place, What::Event(deleted.event()));
            }
            gone.insert(deleted.session);
        }
        self.gone = gone;
        Ok(())
    }

    /// Tells what is stored of a session and was not told.
    async fn catch_up(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let (store, tenant) = (self.state.store.clone(), self.tenant);
        if !self.followed.contains_key(session) {
            let info = store.get_session(tenant, session).await?.info;
            let head = store.get_head(tenant, session).await?;
            let first = store.find_first_since(tenant, session, self.horizon).await?;
            let seen = first.map_or(head.seq, |first| first.saturating_sub(1));
            let name = store.get_project(tenant, &info.project_id).await?.name;
            let (project, epoch) = (Arc::new(Directory { project: info.project_id, name }), head.epoch);
            let known = Followed { project, seen, epoch, open: OpenParts::default() };
            self.followed.insert(session.clone(), known);
            self.adopt_open_parts(session).await?;
        }
        let Some(seen) = self.followed.get(session).map(|known| known.seen) else { return Ok(()) };
        let mut pages = store.event_pages(tenant, session.clone(), seen);
        while let Some(events) = pages.next().await? {
            events.into_iter().for_each(|event| self.tell(session, event));
        }
        Ok(())
    }

    /// Takes over the parts that began to stream before anybody followed their session.
    async fn adopt_open_parts(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let page = Page { limit: 1, cursor: None };
        let newest = self.state.store.list_messages(self.tenant, session, &page).await?;
        let Some(known) = self.followed.get_mut(session) else { return Ok(()) };
        let parts = newest.into_iter().flat_map(|entry| entry.parts);
        for (_, part) in parts.filter(|(_, part)| messages::open_text(part).is_some()) {
            self.texts.begin(&part.id, "");
            known.open.open(part.id, part.message_id, 0);
        }
        self.read_open_texts(session).await
    }

    fn tell(&mut self, session: &SessionId, event: StoredEvent) {
        let Some(known) = self.followed.get_mut(session) else { return };
        known.seen = event.seq;
        known.epoch = known.epoch.max(event.epoch);
        known.open.observe(&event.kind, event.properties.as_bytes());
        self.texts.observe(&event);
        let place = Place::Session(session.clone(), Arc::clone(&known.project));
        self.send(place, What::Event(event));
    }

    fn tell_delta(&mut self, session: &SessionId, delta: &Delta) {
        let Some(known) = self.followed.get_mut(session).filter(|known| delta.epoch >= known.epoch) else {
            return;
        };
        let (fresh, project) = (known.open.fresh(delta), Arc::clone(&known.project));
        self.tell_fresh(session, &project, fresh);
    }

    fn tell_fresh(&self, session: &SessionId, project: &Arc<Directory>, fresh: Vec<v1::Delta>) {
        for delta in fresh {
            self.texts.extend(&delta);
            self.send(Place::Session(session.clone(), Arc::clone(project)), What::Delta(delta));
        }
    }

    /// Tells stored text that fills holes.
    async fn mend(&mut self) -> Result<(), store::error::Error> {
        let holed = self.followed.iter().filter(|(_, known)| known.open.has_holes());
        let holed: Vec<SessionId> = holed.map(|(session, _)| session.clone()).collect();
        for session in holed {
            self.read_open_texts(&session).await?;
        }
        Ok(())
    }

    /// Tells the stored text of the parts that stream, as far as it was not told.
    async fn read_open_texts(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let Some(epoch) = self.followed.get(session).map(|known| known.epoch) else { return Ok(()) };
        let chunks = self.state.store.list_chunks(self.tenant, session, epoch).await?;
        let Some(known) = self.followed.get_mut(session) else { return Ok(()) };
        let fresh: Vec<v1::Delta> = chunks.iter().flat_map(|chunk| known.open.chunk(chunk)).collect();
        let project = Arc::clone(&known.project);
        self.tell_fresh(session, &project, fresh);
        Ok(())
    }

    fn send(&self, place: Place, what: What) {
        let told = Told { place, what, horizon: self.horizon };
        // Nobody may be listening just now.
        drop(self.told.send(Arc::new(told)));
    }
}
