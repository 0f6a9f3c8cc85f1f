//! Live events and deltas of sessions. They are sent after the commit, and no writer waits for them: a full queue drops them, and
//! the reader repairs the gap from Postgres.

use crate::{
    Bus,
    error::Error,
    outgoing, subjects,
    subscription::{Signal, Start, Subscription},
};
use bytes::Bytes;
use domain::{
    event::StoredEvent,
    ids::{MessageId, PartId, ProjectId, SessionId, TenantId, Timestamp},
};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Pending news of one process: about a second of busy loops. Further news is dropped, and readers repair the gap from
/// Postgres.
const NEWS_QUEUE_MAX: usize = 4_096;
/// Bytes of such news. Further news is dropped as well.
const NEWS_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// News that is sent together. Further news follows when these have left.
const NEWS_TOGETHER_MAX: usize = 256;
/// Unit in which the bytes of pending news are counted.
const NEWS_UNIT_BYTES: usize = 1_024;
/// Bytes of an event that is sent as news. Of a larger one only the position is sent, and readers get the event from Postgres:
/// NATS and every reader keep a thousand messages for a slow connection.
const NEWS_EVENT_BYTES_MAX: usize = 32 * 1_024;
/// Bytes of the text of joined fragments. Further text begins a fragment of its own.
const JOINED_BYTES_MAX: usize = 8 * 1_024;
/// Time that a new reader waits for NATS before it continues without it; milliseconds. A person waits for the first event
/// meanwhile.
const NATS_JOIN_MS: u64 = 2_000;

/// One message of the feed.
///
/// ```json
/// {"event":{"seq":7,"epoch":2,"id":"evt_…","kind":"session.idle","at":1795292980519,"properties":{…}}}
/// {"delta":{"epoch":2,"message":"msg_…","part":"prt_…","offset":12,"text":"Hel"}}
/// {"beat":{"epoch":2,"seq":7}}
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// A durable event.
    Event(Event),
    /// A fragment of an open part.
    Delta(Delta),
    /// The loop is alive, and this is the newest event.
    Beat {
        epoch: u64,
        /// Position of the newest event.
        seq: u64,
    },
    /// A live-only notice, for example of a terminal. Not stored: only readers that are subscribed now receive it.
    Notice(Notice),
    /// Not sent over NATS: the reader is subscribed from this point on and must read everything earlier from
    /// Postgres.
    #[serde(skip)]
    Joined,
}

/// A durable event, after its commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Its position in the session.
    pub seq: u64,
    /// The loop that wrote it.
    pub epoch: u64,
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// Milliseconds since 1970.
    pub at: i64,
    /// The `properties` object, as stored.
    pub properties: Box<RawValue>,
}

impl From<Event> for StoredEvent {
    fn from(event: Event) -> Self {
        Self {
            seq: event.seq,
            epoch: event.epoch,
            id: event.id,
            kind: event.kind,
            properties: event.properties.get().to_owned(),
            at: Timestamp(event.at),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Session(SessionId),
    /// A project. Only notices are about projects.
    Project(ProjectId),
    /// A whole tenant. Only notices are about tenants.
    Tenant,
}

/// A live-only notice, as clients receive it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notice {
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// The `properties` object.
    pub properties: Box<RawValue>,
    /// The directory that the notice is about: the name of a project, or of one of its worktrees; otherwise empty. Messages call
    /// it `project_name`: gateways of the version before read them during an update.
    #[serde(default, rename = "project_name", skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The name of the key of its only reader; empty: for all subscribers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reader: String,
}

/// A fragment of an open part. Never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The loop that sent it.
    pub epoch: u64,
    pub message: MessageId,
    pub part: PartId,
    /// Its offset in the part's UTF-8 text; bytes.
    pub offset: u64,
    pub text: String,
}

impl Delta {
    /// Adds a fragment that continues this one. Gives it back if it does not, or if the text would be too long.
    pub fn join(&mut self, next: Self) -> Option<Self> {
        let end = self.offset + self.text.len() as u64;
        let continues = (next.epoch, &next.part, next.offset) == (self.epoch, &self.part, end);
        if !continues || self.text.len() + next.text.len() > JOINED_BYTES_MAX {
            return Some(next);
        }
        self.text.push_str(&next.text);
        None
    }
}

/// Sends in order and never waits. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Publisher {
    queue: mpsc::Sender<PendingNews>,
    /// The number of the newest news.
    newest: Arc<AtomicU64>,
    /// The number up to which news has left this process.
    departed: watch::Receiver<u64>,
    /// Room for further bytes, in units.
    room: Arc<Semaphore>,
    namespace: String,
}

/// The way of one message out of this process. A writer that waits for its end gathers what it has to say meanwhile.
#[derive(Debug, Clone)]
pub struct Departure {
    number: u64,
    departed: watch::Receiver<u64>,
}

impl Departure {
    /// Whether the message has left. A dropped message counts as gone as soon as a later one has left.
    pub fn is_over(&self) -> bool {
        *self.departed.borrow() >= self.number
    }

    /// Waits until the message has left. It may never do so while NATS is away. Cancel-safe.
    pub async fn over(&self) {
        let mut departed = self.departed.clone();
        if departed.wait_for(|departed| *departed >= self.number).await.is_err() {
            // Nothing is sent any more.
            std::future::pending().await
        }
    }
}

/// A message that waits to be sent.
#[derive(Debug)]
struct PendingNews {
    number: u64,
    subject: String,
    payload: Bytes,
    _room: OwnedSemaphorePermit,
}

/// The news of one session.
#[derive(Debug)]
pub struct Reader(NewsStream);

/// The news of all sessions and projects of a tenant.
#[derive(Debug)]
pub struct TenantReader(NewsStream);

/// News with its subject. [`News::Joined`] has no subject.
pub type TenantNews = (Option<Subject>, News);

/// The news of a NATS subject, which may have wildcards.
#[derive(Debug)]
struct NewsStream {
    subscription: Subscription,
    /// News that was received after the fragment that the last call returned.
    ahead: Option<TenantNews>,
}

impl Bus {
    /// Starts a sending task. It ends with the last clone of the publisher.
    pub fn publisher(&self) -> Publisher {
        let (queue, mut pending) = mpsc::channel::<PendingNews>(NEWS_QUEUE_MAX);
        let (gone, departed) = watch::channel(0);
        let nats = self.nats.clone();
        outgoing::spawn(async move {
            let mut together = Vec::with_capacity(NEWS_TOGETHER_MAX);
            while pending.recv_many(&mut together, NEWS_TOGETHER_MAX).await > 0 {
                // Callers may enqueue in another order than their numbers.
                let newest = together.iter().map(|news| news.number).max().unwrap_or_default();
                for PendingNews { subject, payload, .. } in together.drain(..) {
                    outgoing::send(&nats, subject, payload).await;
                }
                outgoing::flush(&nats).await;
                gone.send_if_modified(|gone| {
                    let is_later = newest > *gone;
                    *gone = newest.max(*gone);
                    is_later
                });
            }
        });
        let room = Arc::new(Semaphore::new(NEWS_QUEUE_BYTES_MAX / NEWS_UNIT_BYTES));
        Publisher { queue, newest: Arc::default(), departed, room, namespace: self.namespace.clone() }
    }

    /// Subscribes to a session. Once the reader has joined, the server knows the subscription: a later commit either is read
    /// from Postgres afterwards or arrives here. While NATS is down the reader cannot join; it joins by itself and returns
    /// [`News::Joined`] once NATS is back. Takes [`NATS_JOIN_MS`] at most.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn read(&self, tenant: TenantId, session: &SessionId) -> Result<Reader, Error> {
        self.subscribe(subjects::news(&self.namespace, tenant, session.as_str())).await.map(Reader)
    }

    /// Like [`Bus::read`], for all sessions and projects of a tenant.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn read_tenant(&self, tenant: TenantId) -> Result<TenantReader, Error> {
        self.subscribe(subjects::news(&self.namespace, tenant, subjects::ANY)).await.map(TenantReader)
    }

    async fn subscribe(&self, subject: String) -> Result<NewsStream, Error> {
        let is_away = self.nats.connection_state() == async_nats::connection::State::Disconnected;
        let wait = if is_away { Duration::ZERO } else { Duration::from_millis(NATS_JOIN_MS) };
        let subscription = Subscription::begin(&self.nats, subject, Start::Sent, wait).await?;
        Ok(NewsStream { subscription, ahead: None })
    }
}

/// What the news of a NATS subject is about.
fn parse_subject(nats_subject: &str) -> Option<Subject> {
    let id = subjects::parse_news(nats_subject)?;
    match id.parse() {
        Ok(session) => Some(Subject::Session(session)),
        Err(_) if id == subjects::ALL => Some(Subject::Tenant),
        Err(_) => id.parse().ok().map(Subject::Project),
    }
}

impl Publisher {
    /// Sends stored events of a session, as [`Publisher::publish`] does; of large events only the position.
    pub fn publish_events(&self, tenant: TenantId, session: &SessionId, events: &[StoredEvent]) {
        for stored in events {
            if stored.properties.len() > NEWS_EVENT_BYTES_MAX {
                self.publish(tenant, session, &News::Beat { epoch: stored.epoch, seq: stored.seq });
                continue;
            }
            let properties = match RawValue::from_string(stored.properties.clone()) {
                Ok(properties) => properties,
                Err(error) => {
                    tracing::error!(%error, "cannot parse a stored event as JSON");
                    continue;
                }
            };
            let event = Event {
                seq: stored.seq,
                epoch: stored.epoch,
                id: stored.id.clone(),
                kind: stored.kind.clone(),
                at: stored.at.0,
                properties,
            };
            self.publish(tenant, session, &News::Event(event));
        }
    }

    /// Sends news of a session, or drops it when the queue is full.
    pub fn publish(&self, tenant: TenantId, session: &SessionId, news: &News) {
        self.send(tenant, session.as_str(), news);
    }

    /// Sends a fragment of text, as [`Publisher::publish`] does, and returns its way out.
    pub fn publish_delta(&self, tenant: TenantId, session: &SessionId, delta: Delta) -> Departure {
        let number = self.send(tenant, session.as_str(), &News::Delta(delta));
        Departure { number, departed: self.departed.clone() }
    }

    /// Sends a notice, as [`Publisher::publish`] does.
    pub fn notify(&self, tenant: TenantId, subject: &Subject, notice: &Notice) {
        let id = match subject {
            Subject::Session(session) => session.as_str(),
            Subject::Project(project) => project.as_str(),
            Subject::Tenant => subjects::ALL,
        };
        self.send(tenant, id, &News::Notice(notice.clone()));
    }

    /// Returns the number of the news.
    fn send(&self, tenant: TenantId, id: &str, news: &News) -> u64 {
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let payload = match serde_json::to_vec(news) {
            Ok(payload) => Bytes::from(payload),
            Err(error) => {
                tracing::error!(%error, "cannot write news as JSON");
                return number;
            }
        };
        let subject = subjects::news(&self.namespace, tenant, id);
        let units = u32::try_from(payload.len().div_ceil(NEWS_UNIT_BYTES)).unwrap_or(u32::MAX);
        match Arc::clone(&self.room).try_acquire_many_owned(units) {
            Err(_) => tracing::debug!("dropped news of {id}: {NEWS_QUEUE_BYTES_MAX} bytes are pending"),
            Ok(room) => {
                if self.queue.try_send(PendingNews { number, subject, payload, _room: room }).is_err() {
                    tracing::debug!("dropped news of {id}: {NEWS_QUEUE_MAX} messages are pending");
                }
            }
        }
        number
    }
}

impl Reader {
    /// Whether the subscription works, as far as the client knows.
    pub fn is_joined(&self) -> bool {
        self.0.subscription.is_joined()
    }

    /// Waits for the next news; `None` when the connection is closed for good. Cancel-safe. Skips messages of unknown versions;
    /// the positions of events show the gap. Joins fragments that have already arrived and continue each other: a reader that falls behind has
    /// fewer of them to deliver.
    pub async fn next(&mut self) -> Option<News> {
        self.0.next().await.map(|(_, news)| news)
    }
}

impl TenantReader {
    /// Whether the subscription works, as far as the client knows.
    pub fn is_joined(&self) -> bool {
        self.0.subscription.is_joined()
    }

    /// Like [`Reader::next`], with the subject of the news.
    pub async fn next(&mut self) -> Option<TenantNews> {
        self.0.next().await
    }
}

impl NewsStream {
    /// See [`Reader::next`].
    async fn next(&mut self) -> Option<TenantNews> {
        let mut news = match self.ahead.take() {
            Some(news) => news,
            None => self.receive().await?,
        };
        // Nothing waits from here on, so a caller that stops waiting loses nothing.
        if let (of, News::Delta(delta)) = &mut news {
            while let Some(Some(next)) = self.receive().now_or_never() {
                self.ahead = match next {
                    (next_of, News::Delta(next)) if next_of == *of => {
                        delta.join(next).map(|next| (next_of, News::Delta(next)))
                    }
                    next => Some(next),
                };
                if self.ahead.is_some() {
                    break;
                }
            }
        }
        Some(news)
    }

    /// Waits for the next message. Cancel-safe.
    async fn receive(&mut self) -> Option<TenantNews> {
        loop {
            let message = match self.subscription.next().await? {
                Signal::Joined => return Some((None, News::Joined)),
                Signal::Message(message) => message,
            };
            match (parse_subject(&message.subject), serde_json::from_slice(&message.payload)) {
                (Some(of), Ok(news)) => return Some((Some(of), news)),
                (None, _) => tracing::warn!(subject = %message.subject, "skipped news of an unknown subject"),
                (Some(_), Err(error)) => tracing::warn!(%error, "skipped news of another version"),
            }
        }
    }
}
