//! What a subscriber sees, collected.

use crate::api::Api;
use rpc::v1::{self, subscribe_response::Item};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tonic::Streaming;

/// How long a test waits for a turn.
const TURN: Duration = Duration::from_secs(40);

/// An event as a subscriber got it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its position.
    pub seq: u64,
    /// The loop that wrote it.
    pub epoch: u64,
    /// The value of `type`.
    pub kind: String,
    /// Its properties.
    pub properties: Value,
}

/// Everything that one subscriber saw.
#[derive(Debug, Default)]
pub struct Transcript {
    /// Events in the order in which they came.
    pub events: Vec<Seen>,
    /// Text put together from deltas, by part.
    pub deltas: BTreeMap<String, String>,
    /// Every offset and length of the deltas, by part.
    pub pieces: BTreeMap<String, Vec<(u64, u64)>>,
    /// The newest cursor.
    pub cursor: String,
    newest_text: String,
}

/// A subscriber.
pub struct Watch {
    stream: Streaming<v1::SubscribeResponse>,
    /// What it saw.
    pub seen: Transcript,
}

impl Watch {
    /// Subscribes from a cursor; empty: from the beginning.
    pub async fn from(api: &Api, session_id: &str, cursor: &str) -> Self {
        let request = v1::SubscribeRequest {
            session_id: session_id.to_owned(),
            cursor: cursor.to_owned(),
            ..Default::default()
        };
        let stream = api.events().subscribe(request).await.expect("a stream").into_inner();
        Self { stream, seen: Transcript::default() }
    }

    /// Subscribes from the beginning.
    pub async fn start(api: &Api, session_id: &str) -> Self {
        Self::from(api, session_id, "").await
    }

    /// Waits for the next answer and notes it; gives it when it is an event.
    pub async fn next(&mut self) -> Option<Seen> {
        let answer = tokio::time::timeout(TURN, self.stream.message());
        let answer =
            answer.await.expect("something happens in time").expect("the stream goes on").expect("no end");
        if !answer.cursor.is_empty() {
            self.seen.cursor = answer.cursor;
        }
        match answer.item? {
            Item::Event(event) => {
                let seen = Seen {
                    seq: event.seq,
                    epoch: event.epoch,
                    kind: event.kind,
                    properties: serde_json::from_slice(&event.properties_json).expect("JSON"),
                };
                self.seen.events.push(seen.clone());
                Some(seen)
            }
            Item::Delta(delta) => {
                self.seen.newest_text.clone_from(&delta.text);
                let pieces = self.seen.pieces.entry(delta.part_id.clone()).or_default();
                pieces.push((delta.offset_bytes, delta.text.len() as u64));
                self.seen.deltas.entry(delta.part_id).or_default().push_str(&delta.text);
                None
            }
            Item::Heartbeat(_) => None,
        }
    }

    /// The text of the newest delta.
    pub fn newest_text(&self) -> &str {
        &self.seen.newest_text
    }

    /// Waits for an event for which `wanted` holds.
    pub async fn until(&mut self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let search = async {
            loop {
                if let Some(seen) = self.next().await
                    && wanted(&seen)
                {
                    return seen;
                }
            }
        };
        // Heartbeats come for ever.
        tokio::time::timeout(TURN, search).await.expect("the event comes in time")
    }

    /// Waits until the model has begun to answer: the part that will hold the text is stored.
    pub async fn until_speaks(&mut self) {
        let is_open = |seen: &Seen| {
            let part = &seen.properties["part"];
            part["type"] == "text" && part["time"]["start"].is_number() && part["time"]["end"].is_null()
        };
        self.until(is_open).await;
    }

    /// Waits until a delta of any part has come, which needs NATS.
    pub async fn until_text(&mut self) {
        while self.seen.deltas.is_empty() {
            self.next().await;
        }
    }

    /// Waits for the end of a turn, and gives its outcome.
    pub async fn until_idle(&mut self) -> String {
        let idle = self.until(|seen| seen.kind == "session.idle").await;
        idle.properties["outcome"].as_str().expect("an outcome").to_owned()
    }

    /// Waits until a running command has shown `text`.
    pub async fn until_shown(&mut self, text: &str) {
        let shown = self.until(|seen| {
            let state = &seen.properties["part"]["state"];
            let output = state["metadata"]["output"].as_str();
            state["status"] == "running" && output.is_some_and(|output| output.contains(text))
        });
        shown.await;
    }

    /// Waits until a tool part has this status.
    pub async fn until_tool(&mut self, status: &str) -> Value {
        let seen = self.until(|seen| {
            let part = &seen.properties["part"];
            part["type"] == "tool" && part["state"]["status"] == status
        });
        seen.await.properties["part"].clone()
    }
}

impl Transcript {
    /// Fails unless the events are numbered from the first one on without a gap.
    pub fn assert_gap_free(&self) {
        for pair in self.events.windows(2) {
            assert_eq!(pair[1].seq, pair[0].seq + 1, "{} after {}", pair[1].kind, pair[0].kind);
            assert!(pair[1].epoch >= pair[0].epoch, "epochs do not fall");
        }
    }

    /// Fails unless the deltas of each part follow on each other and give its final text.
    pub fn assert_deltas_agree(&self) {
        for (part, pieces) in &self.pieces {
            let mut end = pieces[0].0;
            for (offset, length) in pieces {
                assert_eq!(*offset, end, "deltas of {part}");
                end += length;
            }
            if let Some(text) = self.text(part) {
                assert!(text.starts_with(&self.deltas[part]), "deltas of {part} contradict its text");
            }
        }
    }

    fn text(&self, part: &str) -> Option<String> {
        let last = self.events.iter().rev().find(|seen| seen.properties["part"]["id"] == part)?;
        last.properties["part"]["text"].as_str().map(ToOwned::to_owned)
    }

    /// The kinds of the events, in order.
    pub fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(|seen| seen.kind.as_str()).collect()
    }

    /// The error that the session showed last.
    pub fn error(&self) -> Option<&Value> {
        let last = self.events.iter().rev().find(|seen| seen.kind == "session.error")?;
        Some(&last.properties["error"])
    }
}

/// Sends a prompt and waits for its turn: gives the outcome and what was seen from the beginning on.
pub async fn run(api: &Api, session_id: &str, prompt: &str) -> (String, Transcript) {
    let accepted = api.prompt(session_id, prompt).await.expect("an accepted prompt");
    ended(api, session_id, accepted.event_seq).await
}

/// As [`run`], with a prompt that is more than a text.
pub async fn run_asked(
    api: &Api,
    session_id: &str,
    change: impl FnOnce(&mut v1::AcceptPromptRequest),
) -> (String, Transcript) {
    let accepted = api.ask(session_id, change).await.expect("an accepted prompt");
    ended(api, session_id, accepted.event_seq).await
}

/// As [`run`], with the model of a provider.
pub async fn run_on(api: &Api, session_id: &str, provider: &str, prompt: &str) -> (String, Transcript) {
    let accepted = api.prompt_on(session_id, provider, prompt).await;
    ended(api, session_id, accepted.event_seq).await
}

async fn ended(api: &Api, session_id: &str, after_seq: u64) -> (String, Transcript) {
    let mut watch = Watch::start(api, session_id).await;
    let idle = watch.until(|seen| seen.kind == "session.idle" && seen.seq > after_seq).await;
    let outcome = idle.properties["outcome"].as_str().expect("an outcome").to_owned();
    watch.seen.assert_gap_free();
    watch.seen.assert_deltas_agree();
    (outcome, watch.seen)
}

/// Fails unless a further prompt of the session is answered.
pub async fn assert_works(api: &Api, session_id: &str) {
    let (outcome, seen) = run(api, session_id, "@text still here").await;
    assert_eq!(outcome, "done", "{:?}", seen.error());
    let talk = api.conversation(session_id).await;
    let said = talk.last().expect("a message").1.iter().any(|part| part["text"] == "still here");
    assert!(said, "the further prompt is answered");
}

/// A call of `task`, as a directive for the scripted model: the child is prompted with `prompt`.
pub fn task(prompt: &str) -> String {
    task_for("general", prompt)
}

/// As [`task`], for another agent.
pub fn task_for(agent: &str, prompt: &str) -> String {
    let input = serde_json::json!({"description": "a subtask", "prompt": prompt, "subagent_type": agent});
    format!("@tool task {input}")
}

/// A call of `bash`, as a directive for the scripted model.
pub fn bash(command: &str) -> String {
    format!("@tool bash {}", serde_json::json!({"command": command}))
}
