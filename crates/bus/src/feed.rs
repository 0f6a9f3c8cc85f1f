//! Live events and deltas of sessions. Sent after the commit, never awaited: a full queue drops, and the reader repairs
//! the gap from Postgres.

use crate::{
    Bus,
    error::Error,
    subscription::{Begun, Heard, Subscription},
};
use bytes::Bytes;
use domain::{
    event::StoredEvent,
    ids::{MessageId, PartId, ProjectId, SessionId, TenantId, Timestamp},
    limits,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::sync::mpsc;

/// What travels.
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
        /// The loop.
        epoch: u64,
        /// Position of the newest event.
        seq: u64,
    },
    /// Something beside the log, such as a terminal. Never stored: who does not hear it now never does.
    Notice(Notice),
    /// Never sent: the reader hears from now on. What came before is to be read from Postgres.
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
    /// Its id.
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

/// What news is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A session.
    Session(SessionId),
    /// A project: notices only.
    Project(ProjectId),
    /// All that a tenant has: notices only.
    Tenant,
}

/// Something that happened beside the logs of sessions, as clients are told it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notice {
    /// Its id.
    pub id: String,
    /// The value of `type`.
    pub kind: String,
    /// The `properties` object.
    pub properties: Box<RawValue>,
    /// What the project is called that it is of; empty unless it is of one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project_name: String,
    /// Whom it is for, by the name of their key; empty: for all who follow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reader: String,
}

/// A fragment of an open part. Never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The loop that sent it.
    pub epoch: u64,
    /// Which message.
    pub message: MessageId,
    /// Which part.
    pub part: PartId,
    /// Where it begins in the part's UTF-8 text; bytes.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// Sends in order and never waits; clones share the queue.
#[derive(Debug, Clone)]
pub struct Publisher {
    queue: mpsc::Sender<(String, Bytes)>,
    namespace: String,
}

/// The news of one session.
#[derive(Debug)]
pub struct Reader(Subscription);

/// The news of all that a tenant has.
#[derive(Debug)]
pub struct TenantReader(Subscription);

impl Bus {
    /// Starts a sender; it ends with its last clone.
    pub fn publisher(&self) -> Publisher {
        let (queue, mut waiting) = mpsc::channel::<(String, Bytes)>(limits::NEWS_QUEUE_MAX);
        let nats = self.nats.clone();
        tokio::spawn(async move {
            while let Some((subject, payload)) = waiting.recv().await {
                if let Err(error) = nats.publish(subject, payload).await {
                    tracing::debug!(%error, "news was not sent");
                }
            }
        });
        Publisher { queue, namespace: self.namespace.clone() }
    }

    /// Subscribes to a session. When the reader is joined, the server was told of the subscription: whatever is committed
    /// from now on is either read from Postgres afterwards or arrives here. Without NATS the reader is not joined; it
    /// joins by itself, and gives [`News::Joined`], once NATS is back. Lasts [`limits::NATS_JOIN_MS`] at most.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn read(&self, tenant: TenantId, session: &SessionId) -> Result<Reader, Error> {
        self.hear(subject(&self.namespace, tenant, session.as_str())).await.map(Reader)
    }

    /// As [`Bus::read`], for all sessions and projects of a tenant.
    ///
    /// # Errors
    /// `Subscribe` when the client is closed.
    pub async fn read_tenant(&self, tenant: TenantId) -> Result<TenantReader, Error> {
        self.hear(subject(&self.namespace, tenant, "*")).await.map(TenantReader)
    }

    async fn hear(&self, subject: String) -> Result<Subscription, Error> {
        let is_away = self.nats.connection_state() == async_nats::connection::State::Disconnected;
        let wait = if is_away { Duration::ZERO } else { Duration::from_millis(limits::NATS_JOIN_MS) };
        Subscription::begin(&self.nats, subject, (Begun::Sent, wait)).await
    }
}

/// In place of an id, where news is of all that a tenant has.
const ALL: &str = "all";

/// Where news is sent; `*`: of whatever it is.
fn subject(namespace: &str, tenant: TenantId, of: &str) -> String {
    format!("{namespace}.v1.t.{tenant}.s.{of}.news")
}

/// What the news at a [`subject`] is of.
fn read_subject(subject: &str) -> Option<Subject> {
    let of = subject.strip_suffix(".news")?.rsplit('.').next()?;
    match of.parse() {
        Ok(session) => Some(Subject::Session(session)),
        Err(_) if of == ALL => Some(Subject::Tenant),
        Err(_) => of.parse().ok().map(Subject::Project),
    }
}

impl Publisher {
    /// Sends stored events of a session, as [`Publisher::publish`] does.
    pub fn publish_events(&self, tenant: TenantId, session: &SessionId, events: &[StoredEvent]) {
        for stored in events {
            let properties = match RawValue::from_string(stored.properties.clone()) {
                Ok(properties) => properties,
                Err(error) => {
                    tracing::error!(%error, "an event cannot be read as JSON");
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

    /// Sends news of a session, or drops it when too much is waiting.
    pub fn publish(&self, tenant: TenantId, session: &SessionId, news: &News) {
        self.send(tenant, session.as_str(), news);
    }

    /// As [`Publisher::publish`], for a notice.
    pub fn notify(&self, tenant: TenantId, of: &Subject, notice: &Notice) {
        let of = match of {
            Subject::Session(session) => session.as_str(),
            Subject::Project(project) => project.as_str(),
            Subject::Tenant => ALL,
        };
        self.send(tenant, of, &News::Notice(notice.clone()));
    }

    fn send(&self, tenant: TenantId, of: &str, news: &News) {
        let payload = match serde_json::to_vec(news) {
            Ok(payload) => Bytes::from(payload),
            Err(error) => return tracing::error!(%error, "news cannot be written as JSON"),
        };
        let subject = subject(&self.namespace, tenant, of);
        if self.queue.try_send((subject, payload)).is_err() {
            tracing::debug!("news of {of} was dropped: {} messages wait", limits::NEWS_QUEUE_MAX);
        }
    }
}

impl Reader {
    /// Whether news arrives, as far as the client knows.
    pub fn is_joined(&self) -> bool {
        self.0.is_joined()
    }

    /// Waits for the next news; `None` when the connection is closed for good. Cancel-safe. What cannot be read is
    /// passed over: the numbers show the gap.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            let message = match self.0.next().await? {
                Heard::Joined => return Some(News::Joined),
                Heard::Message(message) => message,
            };
            match serde_json::from_slice(&message.payload) {
                Ok(news) => return Some(news),
                Err(error) => tracing::warn!(%error, "news of another version was passed over"),
            }
        }
    }
}

impl TenantReader {
    /// Whether news arrives, as far as the client knows.
    pub fn is_joined(&self) -> bool {
        self.0.is_joined()
    }

    /// As [`Reader::next`], with what the news is of; [`News::Joined`] is of nothing.
    pub async fn next(&mut self) -> Option<(Option<Subject>, News)> {
        loop {
            let message = match self.0.next().await? {
                Heard::Joined => return Some((None, News::Joined)),
                Heard::Message(message) => message,
            };
            match (read_subject(&message.subject), serde_json::from_slice(&message.payload)) {
                (Some(of), Ok(news)) => return Some((Some(of), news)),
                (None, _) => tracing::warn!(subject = %message.subject, "news of nobody was passed over"),
                (Some(_), Err(error)) => tracing::warn!(%error, "news of another version was passed over"),
            }
        }
    }
}
