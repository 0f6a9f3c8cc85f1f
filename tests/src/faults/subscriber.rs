//! A subscriber that follows one session to its end, through lost connections and from gateway to gateway, and records
//! everything that it receives.

use super::{
    client::{Client, may_be_repeated, sentence},
    history::{SeenDelta, SeenEvent, Transcript, now_us},
};
use rpc::v1::{self, subscribe_response::Item};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Heartbeats come every ten seconds: a stream without one is dead.
const SILENCE: Duration = Duration::from_secs(15);
/// Pause before another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The events that a subscriber has received so far, shared with the tasks that wait for it.
#[derive(Debug)]
pub struct Shared {
    kept: Mutex<Kept>,
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    transcript: Transcript,
    cursor: String,
    /// Position of each prompt's first event, by message.
    prompts: HashMap<String, i64>,
    idle: i64,
    /// Whether an operator must look at the session.
    is_convicted: bool,
    /// Whether that was told to the end.
    is_quarantined: bool,
    /// Position of the newest end of a step that no other step follows.
    closing: i64,
}

impl Shared {
    /// For the session of a tenant.
    pub fn new(tenant: usize, session_id: &str) -> Arc<Self> {
        let transcript = Transcript { tenant, session_id: session_id.to_owned(), ..Transcript::default() };
        let kept = Mutex::new(Kept { transcript, ..Kept::default() });
        Arc::new(Self { kept, news: watch::Sender::new(()) })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what was seen.
    pub fn transcript(&self) -> Transcript {
        self.kept().transcript.clone()
    }

    /// Waits until the session is idle after this prompt.
    pub async fn idle_after(&self, message_id: &str) {
        self.until(|kept| kept.prompts.get(message_id).is_some_and(|seq| kept.idle > *seq)).await;
    }

    /// Waits until the session is quarantined, or idle after this prompt.
    pub async fn over_after(&self, message_id: &str) {
        let is_idle = |kept: &Kept| kept.prompts.get(message_id).is_some_and(|seq| kept.idle > *seq);
        self.until(|kept| kept.is_quarantined || is_idle(kept)).await;
    }

    /// Waits until the last step after this prompt is closed, which is just before the session is idle.
    pub async fn closing_after(&self, message_id: &str) {
        let is_closing =
            |kept: &Kept| kept.prompts.get(message_id).is_some_and(|seq| kept.closing.max(kept.idle) > *seq);
        self.until(is_closing).await;
    }

    async fn until(&self, reached: impl Fn(&Kept) -> bool) {
        let mut news = self.news.subscribe();
        while !reached(&self.kept()) {
            // The sender lives as long as `self`.
            drop(news.changed().await);
        }
    }
}

/// Follows a session until `stop`. With `stay`, it leaves by itself that long after each connection and comes back.
pub async fn follow(client: Client, shared: Arc<Shared>, stay: Option<Duration>, stop: CancellationToken) {
    let session_id = shared.kept().transcript.session_id.clone();
    while !stop.is_cancelled() {
        let connection = {
            let mut kept = shared.kept();
            kept.transcript.connections += 1;
            kept.transcript.connections
        };
        let watched = watch(&client, &shared, &session_id, connection);
        let left = async {
            match stay {
                Some(stay) => tokio::time::sleep(stay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = left => {}
            () = watched => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn watch(client: &Client, shared: &Shared, session_id: &str, connection: u32) {
    let cursor = shared.kept().cursor.clone();
    let request = v1::SubscribeRequest { session_id: session_id.to_owned(), cursor, ..Default::default() };
    let mut events = client.events(connection as usize);
    let stream = match tokio::time::timeout(SILENCE, events.subscribe(request)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(status)) => return told(client, session_id, &status),
        Err(_) => return,
    };
    let mut stream = stream.into_inner();
    loop {
        match tokio::time::timeout(SILENCE, stream.message()).await {
            Ok(Ok(Some(answer))) => shared.take(connection, answer),
            Ok(Err(status)) => return told(client, session_id, &status),
            Ok(Ok(None)) | Err(_) => return,
        }
    }
}

fn told(client: &Client, session_id: &str, status: &tonic::Status) {
    if !may_be_repeated(status) {
        client.surprised(session_id, format!("a subscriber was refused: {}", sentence(status)));
    }
}

impl Shared {
    fn take(&self, connection: u32, answer: v1::SubscribeResponse) {
        let mut kept = self.kept();
        if !answer.cursor.is_empty() {
            kept.cursor = answer.cursor;
        }
        match answer.item {
            Some(Item::Event(event)) => kept.event(event),
            Some(Item::Delta(delta)) => {
                let after_seq = kept.transcript.events.last().map_or(0, |event| event.seq);
                kept.transcript.deltas.push(SeenDelta {
                    connection,
                    after_seq,
                    part_id: delta.part_id,
                    offset: usize::try_from(delta.offset_bytes).unwrap_or(usize::MAX),
                    text: delta.text,
                });
            }
            Some(Item::Heartbeat(_)) | None => return,
        }
        drop(kept);
        self.news.send_replace(());
    }
}

impl Kept {
    fn event(&mut self, event: v1::Event) {
        let seq = i64::try_from(event.seq).unwrap_or(i64::MAX);
        let properties: serde_json::Value =
            serde_json::from_slice(&event.properties_json).unwrap_or_default();
        let info = &properties["info"];
        match event.kind.as_str() {
            "session.idle" => self.idle = seq,
            "flotilla.session.quarantined" => self.is_convicted = true,
            // The last word after the verdict.
            "session.status" if self.is_convicted => self.is_quarantined = true,
            "message.updated" if info["role"] == "user" => {
                let id = info["id"].as_str().unwrap_or_default().to_owned();
                self.prompts.entry(id).or_insert(seq);
            }
            "message.updated" if info["time"]["completed"].is_number() && info["finish"] == "stop" => {
                self.closing = seq;
            }
            _ => {}
        }
        self.transcript.events.push(SeenEvent {
            at_us: now_us(),
            seq,
            epoch: i64::try_from(event.epoch).unwrap_or(i64::MAX),
            id: event.id,
            kind: event.kind,
            properties,
        });
    }
}
