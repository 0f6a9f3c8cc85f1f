//! A subscriber that follows one session to its end and records everything that it receives. It reconnects after lost
//! connections, each time to another gateway.

use super::client::{Client, is_transient, sentence};
use crate::faults::history::{ReceivedDelta, ReceivedEvent, Transcript, now_us};
use rpc::v1::{self, subscribe_response::Item};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A stream that is silent for this long is dead: heartbeats come every ten seconds.
const SILENCE: Duration = Duration::from_secs(15);
/// Pause before another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The events that a subscriber has received so far, shared with the tasks that wait for it.
#[derive(Debug)]
pub struct Record {
    state: Mutex<State>,
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    transcript: Transcript,
    cursor: String,
    /// Position of each prompt's first event, by message.
    prompts: HashMap<String, i64>,
    idle: i64,
    /// Whether the quarantine was announced.
    is_quarantine_announced: bool,
    /// Whether the last event of the quarantine arrived.
    is_quarantined: bool,
    /// Position of the newest end of a last step.
    last_step_end: i64,
}

impl Record {
    /// Creates an empty record for a session of a tenant.
    pub fn new(tenant: usize, session_id: &str) -> Arc<Self> {
        let transcript = Transcript { tenant, session_id: session_id.to_owned(), ..Transcript::default() };
        let state = Mutex::new(State { transcript, ..State::default() });
        Arc::new(Self { state, news: watch::Sender::new(()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of the transcript.
    pub fn transcript(&self) -> Transcript {
        self.state().transcript.clone()
    }

    /// Waits until the session is idle after this prompt.
    pub async fn idle_after(&self, message_id: &str) {
        self.until(|state| state.prompts.get(message_id).is_some_and(|seq| state.idle > *seq)).await;
    }

    /// Waits until the session is quarantined, or idle after this prompt.
    pub async fn over_after(&self, message_id: &str) {
        let is_idle = |state: &State| state.prompts.get(message_id).is_some_and(|seq| state.idle > *seq);
        self.until(|state| state.is_quarantined || is_idle(state)).await;
    }

    /// Waits until the last step after this prompt ends, just before the session becomes idle.
    pub async fn last_step_after(&self, message_id: &str) {
        let has_ended = |state: &State| {
            state.prompts.get(message_id).is_some_and(|seq| state.last_step_end.max(state.idle) > *seq)
        };
        self.until(has_ended).await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        let mut news = self.news.subscribe();
        while !reached(&self.state()) {
            // The sender lives as long as `self`.
            drop(news.changed().await);
        }
    }
}

/// Follows a session until `stop`. With `stay`, it closes each connection after that time and reconnects.
pub async fn follow(client: Client, record: Arc<Record>, stay: Option<Duration>, stop: CancellationToken) {
    let session_id = record.state().transcript.session_id.clone();
    while !stop.is_cancelled() {
        let connection = {
            let mut state = record.state();
            state.transcript.connections += 1;
            state.transcript.connections
        };
        let stream = watch(&client, &record, &session_id, connection);
        let limit = async {
            match stay {
                Some(stay) => tokio::time::sleep(stay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = limit => {}
            () = stream => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn watch(client: &Client, record: &Record, session_id: &str, connection: u32) {
    let cursor = record.state().cursor.clone();
    let request = v1::SubscribeRequest { session_id: session_id.to_owned(), cursor, ..Default::default() };
    let mut events = client.events(connection as usize);
    let stream = match tokio::time::timeout(SILENCE, events.subscribe(request)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(status)) => return record_refusal(client, session_id, &status),
        Err(_) => return,
    };
    let mut stream = stream.into_inner();
    loop {
        match tokio::time::timeout(SILENCE, stream.message()).await {
            Ok(Ok(Some(answer))) => record.take(connection, answer),
            Ok(Err(status)) => return record_refusal(client, session_id, &status),
            Ok(Ok(None)) | Err(_) => return,
        }
    }
}

fn record_refusal(client: &Client, session_id: &str, status: &tonic::Status) {
    if !is_transient(status) {
        client.record_surprise(session_id, format!("a subscriber was refused: {}", sentence(status)));
    }
}

impl Record {
    fn take(&self, connection: u32, answer: v1::SubscribeResponse) {
        let mut state = self.state();
        if !answer.cursor.is_empty() {
            state.cursor = answer.cursor;
        }
        match answer.item {
            Some(Item::Event(event)) => state.event(event),
            Some(Item::Delta(delta)) => {
                let after_seq = state.transcript.events.last().map_or(0, |event| event.seq);
                state.transcript.deltas.push(ReceivedDelta {
                    connection,
                    after_seq,
                    part_id: delta.part_id,
                    offset: usize::try_from(delta.offset_bytes).unwrap_or(usize::MAX),
                    text: delta.text,
                });
            }
            Some(Item::Heartbeat(_) | Item::Notice(_)) | None => return,
        }
        drop(state);
        self.news.send_replace(());
    }
}

impl State {
    fn event(&mut self, event: v1::Event) {
        let seq = i64::try_from(event.seq).unwrap_or(i64::MAX);
        let properties: serde_json::Value =
            serde_json::from_slice(&event.properties_json).unwrap_or_default();
        let info = &properties["info"];
        match event.kind.as_str() {
            "session.idle" => self.idle = seq,
            "flotilla.session.quarantined" => self.is_quarantine_announced = true,
            // The last event of a quarantine.
            "session.status" if self.is_quarantine_announced => self.is_quarantined = true,
            "message.updated" if info["role"] == "user" => {
                let id = info["id"].as_str().unwrap_or_default().to_owned();
                self.prompts.entry(id).or_insert(seq);
            }
            "message.updated" if info["time"]["completed"].is_number() && info["finish"] == "stop" => {
                self.last_step_end = seq;
            }
            _ => {}
        }
        self.transcript.events.push(ReceivedEvent {
            at_us: now_us(),
            seq,
            epoch: i64::try_from(event.epoch).unwrap_or(i64::MAX),
            id: event.id,
            kind: event.kind,
            properties,
        });
    }
}
