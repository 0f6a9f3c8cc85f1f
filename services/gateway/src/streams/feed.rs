//! The feeds: one for each tenant with a subscribed client, shared by all its subscribers. A feed receives NATS messages, repairs
//! every gap of a session from Postgres, and polls Postgres for commits whose message NATS lost. Its subscribers get everything,
//! each session in order; a subscriber that resumes may get an item twice.

mod terminal_ends;

use super::{
    bounded::{
        deltas::WaitingDeltas,
        ring::{self, Bounds},
    },
    cursor::TenantCursor,
    event::{Fragment, open_text},
    hub::POLL_WITHOUT_NATS,
    notices::{DISPOSED, EVERY_READER, WORKTREE_READY},
    open_parts::{OpenParts, TextChange},
    open_texts::OpenTexts,
    progress::Progress,
    shared::SharedMap,
    subscription::REPAIR_INTERVAL,
    update::{Content, Directory, Update, UpdateScope},
};
use crate::{
    directory_project, memory::room::QueueRoom, state::State, streams::feed::terminal_ends::TerminalEnds,
};
use bus::feed::{Delta, News, Notice, Subject, TenantReader};
use chassis::tasks;
use domain::{
    event::{self, StoredEvent},
    ids::{SessionId, TenantId},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use store::{Page, log::feed::Horizon};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

/// Poll interval for events whose NATS message was lost. The horizon lags behind by this time.
const POLL_WITH_NATS: Duration = Duration::from_secs(2);
/// Pending updates of one slow subscriber. With more, it starts again from Postgres.
const PENDING: Bounds = Bounds { items: 4_096, bytes: 8 * 1024 * 1024 };
/// Sessions whose position is remembered. Beyond that all positions are read again.
const SESSIONS_MAX: usize = 10_000;

/// The feeds of this gateway; clones are cheap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Feeds(Arc<SharedMap<TenantId, Feed>>);

/// The feed of one tenant. Ends with its last subscriber.
#[derive(Debug)]
pub(crate) struct Feed {
    updates: ring::Sender<Update>,
    horizon: watch::Receiver<Option<Horizon>>,
    /// The texts of open parts.
    pub(crate) texts: Arc<OpenTexts>,
    _task: AbortOnDropHandle<()>,
}

impl Feeds {
    /// Joins the feed of a tenant. The receiver gets everything that is committed from now on.
    pub(crate) async fn join(&self, state: &State, tenant: TenantId) -> (Arc<Feed>, ring::Receiver<Update>) {
        let feed = self.0.join(tenant, || Feed::start(state, tenant));
        let receiver = feed.updates.subscribe();
        // Wait until the feed is subscribed. A subscriber that reads Postgres earlier would miss the commits in
        // between.
        if feed.horizon.clone().wait_for(Option::is_some).await.is_err() {
            tracing::debug!("a feed ended before it began");
        }
        (feed, receiver)
    }

    /// Notifies all subscribers of this gateway.
    pub(crate) fn notify_all(&self, notice: &Notice) {
        for (_, feed) in self.0.filter(|_| true) {
            // A feed without a horizon has no subscriber yet.
            let Some(horizon) = *feed.horizon.borrow() else { continue };
            let (content, cursor) = (Content::Notice(notice.clone()), Arc::new(TenantCursor::at(horizon)));
            let update = Update::new(UpdateScope::Tenant, content, cursor);
            let bytes = update.bytes();
            feed.updates.send(update, bytes);
        }
    }
}

impl Feed {
    fn start(state: &State, tenant: TenantId) -> Self {
        let texts = Arc::<OpenTexts>::default();
        let updates = ring::Sender::new(PENDING, QueueRoom::new(Arc::clone(&state.room), tenant));
        let (horizons, horizon) = watch::channel(None);
        let source = Source {
            state: state.clone(),
            tenant,
            updates: updates.clone(),
            horizons,
            progress: Progress::default(),
            sessions: HashMap::new(),
            gone: HashSet::new(),
            texts: Arc::clone(&texts),
            terminal_ends: TerminalEnds::new(state.clone(), tenant),
        };
        Self { updates, horizon, texts, _task: tasks::spawn_owned("feed", source.run()) }
    }

    /// The position of a stream that has read everything up to now.
    pub(crate) fn horizon(&self) -> Horizon {
        self.horizon.borrow().unwrap_or_default()
    }
}

/// Receives and reads the events of one tenant, and forwards them.
struct Source {
    state: State,
    tenant: TenantId,
    updates: ring::Sender<Update>,
    horizons: watch::Sender<Option<Horizon>>,
    progress: Progress,
    sessions: HashMap<SessionId, Position>,
    /// Deleted sessions that were reported and that the next poll may find again.
    gone: HashSet<SessionId>,
    texts: Arc<OpenTexts>,
    terminal_ends: TerminalEnds,
}

/// The forwarded position of a session.
struct Position {
    directory: Arc<Directory>,
    /// Whether its worktree may be gone, or begin anew: then the session is in another directory.
    may_have_left: bool,
    seen: u64,
    epoch: u64,
    open: OpenParts,
}

impl Source {
    async fn run(mut self) {
        loop {
            if tasks::catch_panic("feed", self.join_and_follow()).await.is_none() {
                // Nothing is known about what was in the middle of a change. The positions are read again, from the horizon on.
                self.sessions.clear();
                self.gone.clear();
            }
            tokio::time::sleep(POLL_WITH_NATS).await;
        }
    }

    async fn join_and_follow(&mut self) {
        match self.state.bus.read_tenant(self.tenant).await {
            Ok(reader) => self.follow(reader).await,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot subscribe to NATS");
            }
        }
    }

    /// Runs until the connection is closed for good.
    async fn follow(&mut self, mut reader: TenantReader) {
        let (mut poll_at, mut repair_at) = (Instant::now(), Instant::now());
        let mut waiting = WaitingDeltas::new();
        loop {
            let has_holes = self.sessions.values().any(|position| position.open.has_holes());
            tokio::select! {
                biased;
                () = sleep_until(repair_at), if has_holes => {
                    self.send_waiting(&mut waiting).await;
                    if let Err(error) = self.repair().await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "cannot fill a hole yet");
                    }
                    repair_at = Instant::now() + REPAIR_INTERVAL;
                }
                () = sleep_until(poll_at) => {
                    // First: the poll may find the end of a part, and its deltas then come too late.
                    self.send_waiting(&mut waiting).await;
                    if let Err(error) = self.poll().await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "cannot poll for events");
                    }
                    if self.horizon() > 0 {
                        self.terminal_ends.recall().await;
                    }
                    let hears = reader.is_joined() && self.state.bus.ping_nats().is_ok();
                    poll_at = Instant::now() + if hears { POLL_WITH_NATS } else { POLL_WITHOUT_NATS };
                }
                () = sleep_until(waiting.look_at()), if !waiting.is_empty() => self.send_due(&mut waiting).await,
                (session, end) = self.terminal_ends.next() => {
                    self.try_hear(Subject::Session(session), News::Notice(end)).await;
                }
                news = reader.next() => match news {
                    Some((Some(Subject::Session(session)), News::Delta(delta))) => {
                        waiting.add(session, delta);
                        self.send_due(&mut waiting).await;
                    }
                    Some((Some(subject), news)) => {
                        self.send_waiting(&mut waiting).await;
                        self.try_hear(subject, news).await;
                    }
                    Some((None, _)) => poll_at = Instant::now(),
                    None => return,
                },
            }
        }
    }

    async fn send_due(&mut self, waiting: &mut WaitingDeltas) {
        if waiting.is_due(Instant::now(), self.updates.is_received()) {
            self.send_waiting(waiting).await;
        }
    }

    async fn send_waiting(&mut self, waiting: &mut WaitingDeltas) {
        for (session, delta) in waiting.take() {
            self.try_hear(Subject::Session(session), News::Delta(delta)).await;
        }
    }

    async fn try_hear(&mut self, subject: Subject, news: News) {
        if let Err(error) = self.hear(subject, news).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "cannot read a session; the next poll will");
        }
    }

    /// Forwards commits whose message was lost, and moves the horizon.
    async fn poll(&mut self) -> Result<(), store::error::Error> {
        // A new feed starts at the current head; it does not replay older events.
        let since = if self.horizon() == 0 { i64::MAX as u64 } else { self.horizon() };
        let (horizon, written) = self.state.store.list_written(self.tenant, since).await?;
        for entry in written {
            let position = self.sessions.get_mut(&entry.session);
            let is_behind = position.as_ref().is_none_or(|position| position.seen < entry.seq);
            // Its worktree may be gone, or begin anew.
            if let Some(position) = position.filter(|position| position.directory.name != entry.directory) {
                position.directory = Arc::new(Directory { project: entry.project, name: entry.directory });
            }
            if is_behind {
                self.catch_up(&entry.session).await?;
            }
        }
        self.report_deleted(since).await?;
        self.progress.reach(horizon);
        self.horizons.send_replace(Some(horizon));
        if self.sessions.len() > SESSIONS_MAX {
            self.sessions.clear();
        }
        Ok(())
    }

    async fn hear(&mut self, subject: Subject, news: News) -> Result<(), store::error::Error> {
        let (scope, notice) = match (subject, news) {
            (Subject::Session(session), news) => return self.take(session, news).await,
            (Subject::Project(project), News::Notice(notice)) => {
                let directory = Directory { project, name: notice.directory.clone() };
                let directory = Arc::new(directory);
                // A command for the clients in one directory of the project is none for those in another one.
                let is_for_one = notice.kind == WORKTREE_READY || notice.reader != EVERY_READER;
                let of = if is_for_one { UpdateScope::ProjectDirectory } else { UpdateScope::Project };
                (of(directory), notice)
            }
            (Subject::Tenant, News::Notice(notice)) if notice.directory.is_empty() => {
                (UpdateScope::Tenant, notice)
            }
            (Subject::Tenant, News::Notice(notice)) => {
                let name = notice.directory.clone();
                if notice.kind == DISPOSED {
                    let inside =
                        self.sessions.values_mut().filter(|position| position.directory.name == name);
                    inside.for_each(|position| position.may_have_left = true);
                }
                let project = directory_project::id_of(self.tenant, &name);
                (UpdateScope::Directory(Arc::new(Directory { project, name })), notice)
            }
            (
                Subject::Project(_) | Subject::Tenant,
                News::Event(_) | News::Delta(_) | News::Beat { .. } | News::Joined,
            ) => return Ok(()),
        };
        // Before the first poll the feed has no subscribers.
        if self.horizon() > 0 {
            self.send(scope, Content::Notice(notice));
        }
        Ok(())
    }

    async fn take(&mut self, session: SessionId, news: News) -> Result<(), store::error::Error> {
        self.find_directory(&session).await?;
        let position = self.sessions.get_mut(&session);
        match news {
            // The tombstone was reported together with those of its subtasks; the log is deleted.
            News::Event(event) if event.kind == event::DELETED && self.gone.contains(&session) => {}
            News::Event(event) if event.kind == event::DELETED => self.report_deleted(self.horizon()).await?,
            News::Event(event) => match position {
                Some(position) if event.seq <= position.seen => {}
                Some(position) if event.seq == position.seen + 1 => {
                    self.send_event(&session, event.into());
                }
                Some(_) | None => self.catch_up(&session).await?,
            },
            News::Delta(delta) => {
                if position.is_none() {
                    self.catch_up(&session).await?;
                }
                self.send_delta(&session, &delta);
            }
            News::Beat { seq, .. } => {
                if position.is_none_or(|position| position.seen < seq) {
                    self.catch_up(&session).await?;
                }
            }
            News::Notice(notice) => {
                if position.is_none() {
                    self.catch_up(&session).await?;
                }
                self.terminal_ends.observe(&notice);
                if let Some(position) = self.sessions.get(&session) {
                    let scope = UpdateScope::Session(session, Arc::clone(&position.directory));
                    self.send(scope, Content::Notice(notice));
                }
            }
            News::Joined => {}
        }
        Ok(())
    }

    /// Reads the directory of a session again that may have left its worktree.
    async fn find_directory(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let Some(position) = self.sessions.get_mut(session).filter(|position| position.may_have_left) else {
            return Ok(());
        };
        match self.state.store.get_session(self.tenant, session).await {
            Ok(stored) => {
                (position.directory, position.may_have_left) = (Arc::new(Directory::from(&stored)), false);
                Ok(())
            }
            // The report of its deletion names its directory.
            Err(store::error::Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports deleted sessions. The store may list the deletions of one moment more than once.
    async fn report_deleted(&mut self, since: Horizon) -> Result<(), store::error::Error> {
        if since == 0 {
            return Ok(());
        }
        let mut gone = HashSet::new();
        for tombstone in self.state.store.list_deleted(self.tenant, since).await? {
            self.sessions.remove(&tombstone.session);
            if !self.gone.contains(&tombstone.session) {
                let directory = Arc::new(Directory::from(&tombstone));
                let scope = UpdateScope::Session(tombstone.session.clone(), directory);
                let event = tombstone.event();
                self.progress.send(&tombstone.session, event.seq);
                self.send(scope, Content::Event { event, text: None });
            }
            gone.insert(tombstone.session);
        }
        self.gone = gone;
        Ok(())
    }

    /// Forwards the stored events of a session after its position.
    async fn catch_up(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let (store, tenant) = (self.state.store.clone(), self.tenant);
        if !self.sessions.contains_key(session) {
            let directory = Arc::new(Directory::from(&store.get_session(tenant, session).await?));
            let head = store.get_head(tenant, session).await?;
            let first = store.find_first_since(tenant, session, self.horizon()).await?;
            let last_seq = first.map_or(head.seq, |first| first.saturating_sub(1));
            let position = Position {
                directory,
                may_have_left: false,
                seen: last_seq,
                epoch: head.epoch,
                open: OpenParts::default(),
            };
            self.sessions.insert(session.clone(), position);
            self.adopt_open_parts(session).await?;
        }
        let Some(last_seq) = self.sessions.get(session).map(|position| position.seen) else { return Ok(()) };
        let mut pages = store.event_pages(tenant, session.clone(), last_seq);
        while let Some(events) = pages.next_whole().await? {
            events.into_iter().for_each(|event| self.send_event(session, event));
        }
        Ok(())
    }

    /// Loads the parts that opened before the feed received events of their session.
    async fn adopt_open_parts(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let page = Page { limit: 1, cursor: None };
        let newest = self.state.store.list_messages(self.tenant, session, &page).await?;
        let Some(position) = self.sessions.get_mut(session) else { return Ok(()) };
        let parts = newest.entries.into_iter().flat_map(|entry| entry.parts);
        for (_, part) in parts.filter(|(_, part)| open_text(part).is_some()) {
            position.open.open(part.id.clone(), part.message_id.clone(), 0);
            self.texts.begin_empty(part);
        }
        self.send_stored_text(session).await
    }

    fn send_event(&mut self, session: &SessionId, event: StoredEvent) {
        let Some(position) = self.sessions.get_mut(session) else { return };
        position.seen = event.seq;
        position.epoch = position.epoch.max(event.epoch);
        let text = TextChange::of(&event.kind, event.properties.as_bytes());
        if let Some(change) = &text {
            position.open.change(change.clone());
        }
        self.texts.observe(&event);
        self.progress.send(session, event.seq);
        let scope = UpdateScope::Session(session.clone(), Arc::clone(&position.directory));
        self.send(scope, Content::Event { event, text });
    }

    fn send_delta(&mut self, session: &SessionId, delta: &Delta) {
        let position = self.sessions.get_mut(session);
        let Some(position) = position.filter(|position| delta.epoch >= position.epoch) else { return };
        let fragments = position.open.add_delta(delta);
        self.send_fragments(session, fragments);
    }

    fn send_fragments(&self, session: &SessionId, fragments: Vec<Fragment>) {
        let Some(Position { directory, seen: last_seq, .. }) = self.sessions.get(session) else { return };
        for fragment in fragments {
            self.texts.extend(&fragment);
            let scope = UpdateScope::Session(session.clone(), Arc::clone(directory));
            self.send(scope, Content::Fragment { fragment, after: *last_seq });
        }
    }

    /// Fills holes with stored text.
    async fn repair(&mut self) -> Result<(), store::error::Error> {
        let with_holes = self.sessions.iter().filter(|(_, position)| position.open.has_holes());
        let with_holes: Vec<SessionId> = with_holes.map(|(session, _)| session.clone()).collect();
        for session in with_holes {
            self.send_stored_text(&session).await?;
        }
        Ok(())
    }

    /// Forwards the stored text of open parts that was not received.
    async fn send_stored_text(&mut self, session: &SessionId) -> Result<(), store::error::Error> {
        let Some(epoch) = self.sessions.get(session).map(|position| position.epoch) else { return Ok(()) };
        let chunks = self.state.store.list_chunks(self.tenant, session, epoch).await?;
        let Some(position) = self.sessions.get_mut(session) else { return Ok(()) };
        let fragments = chunks.iter().flat_map(|chunk| position.open.add_chunk(chunk)).collect();
        self.send_fragments(session, fragments);
        Ok(())
    }

    fn send(&self, scope: UpdateScope, content: Content) {
        let update = Update::new(scope, content, Arc::clone(self.progress.cursor()));
        let bytes = update.bytes();
        self.updates.send(update, bytes);
    }

    /// The moment before which everything was sent; 0 before the first poll.
    fn horizon(&self) -> Horizon {
        self.progress.cursor().horizon
    }
}
