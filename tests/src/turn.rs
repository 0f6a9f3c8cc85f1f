//! The transcript of a subscriber, and helpers that run a turn.

use crate::api::Api;
use domain::event::WORKSPACE_PROGRESS;
use rpc::v1::{self, subscribe_response::Item};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tonic::Streaming;

/// Time limit for a turn, also on a machine that is much too busy.
const TURN: Duration = Duration::from_secs(150);

/// An event as a subscriber received it.
#[derive(Debug, Clone)]
pub struct Event {
    pub seq: u64,
    /// The epoch of the loop that wrote it.
    pub epoch: u64,
    /// The value of `type`.
    pub kind: String,
    pub properties: Value,
}

/// Everything that one subscriber received.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The events, in the order of their arrival.
    pub events: Vec<Event>,
    /// The text of the deltas, by part.
    pub deltas: BTreeMap<String, String>,
    /// The offset and length of each delta, by part.
    pub pieces: BTreeMap<String, Vec<(u64, u64)>>,
    /// The properties of the notices, in the order of their arrival.
    pub notices: Vec<Value>,
    /// The newest cursor.
    pub cursor: String,
    newest_text: String,
}

pub struct Watch {
    stream: Streaming<v1::SubscribeResponse>,
    pub transcript: Transcript,
}

impl Watch {
    /// Subscribes from a cursor. An empty cursor is the beginning.
    pub async fn from(api: &Api, session_id: &str, cursor: &str) -> Self {
        let request = v1::SubscribeRequest {
            session_id: session_id.to_owned(),
            cursor: cursor.to_owned(),
            ..Default::default()
        };
        let stream = api.events().subscribe(request).await.expect("a stream").into_inner();
        Self { stream, transcript: Transcript::default() }
    }

    /// Subscribes from the beginning.
    pub async fn start(api: &Api, session_id: &str) -> Self {
        Self::from(api, session_id, "").await
    }

    /// Waits for the next item and records it. Returns it if it is an event.
    pub async fn next(&mut self) -> Option<Event> {
        let answer = tokio::time::timeout(TURN, self.stream.message());
        let answer = answer
            .await
            .expect("an item within the time limit")
            .expect("no error")
            .expect("no end of the stream");
        if !answer.cursor.is_empty() {
            self.transcript.cursor = answer.cursor;
        }
        match answer.item? {
            Item::Event(event) => {
                let received = Event {
                    seq: event.seq,
                    epoch: event.epoch,
                    kind: event.kind,
                    properties: serde_json::from_slice(&event.properties_json).expect("JSON"),
                };
                self.transcript.events.push(received.clone());
                Some(received)
            }
            Item::Delta(delta) => {
                self.transcript.newest_text.clone_from(&delta.text);
                let pieces = self.transcript.pieces.entry(delta.part_id.clone()).or_default();
                pieces.push((delta.offset_bytes, delta.text.len() as u64));
                self.transcript.deltas.entry(delta.part_id).or_default().push_str(&delta.text);
                None
            }
            Item::Notice(notice) => {
                assert_eq!(notice.kind, WORKSPACE_PROGRESS);
                let properties = serde_json::from_slice(&notice.properties_json).expect("JSON");
                self.transcript.notices.push(properties);
                None
            }
            Item::Heartbeat(_) => None,
        }
    }

    /// The text of the newest delta.
    pub fn newest_text(&self) -> &str {
        &self.transcript.newest_text
    }

    /// Waits for an event for which `matches` holds.
    pub async fn until(&mut self, matches: impl Fn(&Event) -> bool) -> Event {
        let search = async {
            loop {
                if let Some(event) = self.next().await
                    && matches(&event)
                {
                    return event;
                }
            }
        };
        // Heartbeats arrive without end.
        tokio::time::timeout(TURN, search).await.expect("the event within the time limit")
    }

    /// Waits for a notice for whose properties `matches` holds.
    pub async fn until_notice(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                self.next().await;
                if let Some(notice) = self.transcript.notices.last()
                    && matches(notice)
                {
                    return notice.clone();
                }
            }
        };
        tokio::time::timeout(TURN, search).await.expect("the notice within the time limit")
    }

    /// Waits until the model starts to answer: the part for its text is stored.
    pub async fn until_answering(&mut self) {
        let is_open = |event: &Event| {
            let part = &event.properties["part"];
            part["type"] == "text" && part["time"]["start"].is_number() && part["time"]["end"].is_null()
        };
        self.until(is_open).await;
    }

    /// Waits for a delta of any part, which requires NATS.
    pub async fn until_text(&mut self) {
        while self.transcript.deltas.is_empty() {
            self.next().await;
        }
    }

    /// Waits for the end of a turn, and returns its outcome.
    pub async fn until_idle(&mut self) -> String {
        let idle = self.until(|event| event.kind == "session.idle").await;
        idle.properties["outcome"].as_str().expect("an outcome").to_owned()
    }

    /// Waits until the output of a running command contains `text`.
    pub async fn until_output(&mut self, text: &str) {
        let output = self.until(|event| {
            let state = &event.properties["part"]["state"];
            let output = state["metadata"]["output"].as_str();
            state["status"] == "running" && output.is_some_and(|output| output.contains(text))
        });
        output.await;
    }

    /// Waits until a tool part has this status.
    pub async fn until_tool(&mut self, status: &str) -> Value {
        let event = self.until(|event| {
            let part = &event.properties["part"];
            part["type"] == "tool" && part["state"]["status"] == status
        });
        event.await.properties["part"].clone()
    }
}

impl Transcript {
    /// Asserts that the events are numbered without a gap.
    pub fn assert_gap_free(&self) {
        for pair in self.events.windows(2) {
            assert_eq!(pair[1].seq, pair[0].seq + 1, "{} after {}", pair[1].kind, pair[0].kind);
            assert!(pair[1].epoch >= pair[0].epoch, "epochs do not decrease");
        }
    }

    /// Asserts that the deltas of each part are contiguous and agree with its final text.
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
        let last = self.events.iter().rev().find(|event| event.properties["part"]["id"] == part)?;
        last.properties["part"]["text"].as_str().map(ToOwned::to_owned)
    }

    /// Returns the kinds of the events, in order.
    pub fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.kind.as_str()).collect()
    }

    /// Returns the last error of the session.
    pub fn error(&self) -> Option<&Value> {
        let last = self.events.iter().rev().find(|event| event.kind == "session.error")?;
        Some(&last.properties["error"])
    }
}

/// Sends a prompt and waits for its turn. Returns the outcome, and the transcript of the session from the beginning.
pub async fn run(api: &Api, session_id: &str, prompt: &str) -> (String, Transcript) {
    let accepted = api.prompt(session_id, prompt).await.expect("an accepted prompt");
    wait_for_turn(api, session_id, accepted.event_seq).await
}

/// As [`run`], with a prompt that contains more than a text.
pub async fn run_request(
    api: &Api,
    session_id: &str,
    change: impl FnOnce(&mut v1::AcceptPromptRequest),
) -> (String, Transcript) {
    let accepted = api.prompt_with(session_id, change).await.expect("an accepted prompt");
    wait_for_turn(api, session_id, accepted.event_seq).await
}

/// As [`run`], with the model of a provider.
pub async fn run_on(api: &Api, session_id: &str, provider: &str, prompt: &str) -> (String, Transcript) {
    let accepted = api.prompt_on(session_id, provider, prompt).await;
    wait_for_turn(api, session_id, accepted.event_seq).await
}

async fn wait_for_turn(api: &Api, session_id: &str, after_seq: u64) -> (String, Transcript) {
    let mut watch = Watch::start(api, session_id).await;
    let idle = watch.until(|event| event.kind == "session.idle" && event.seq > after_seq).await;
    let outcome = idle.properties["outcome"].as_str().expect("an outcome").to_owned();
    watch.transcript.assert_gap_free();
    watch.transcript.assert_deltas_agree();
    (outcome, watch.transcript)
}

/// Runs a command in a new turn, and returns its output, or the error of the turn.
///
/// # Errors
/// The error of the turn, as JSON.
pub async fn output(api: &Api, session_id: &str, command: &str) -> Result<String, String> {
    let (outcome, transcript) = run(api, session_id, &format!("{}\n@text over", bash(command))).await;
    match outcome.as_str() {
        "done" => Ok(api.tool_calls(session_id).await.pop().expect("a call").result),
        _ => Err(transcript.error().expect("an error").to_string()),
    }
}

/// Asserts that the session answers a further prompt.
pub async fn assert_works(api: &Api, session_id: &str) {
    let (outcome, transcript) = run(api, session_id, "@text still here").await;
    assert_eq!(outcome, "done", "{:?}", transcript.error());
    let messages = api.conversation(session_id).await;
    let is_answered = messages.last().expect("a message").1.iter().any(|part| part["text"] == "still here");
    assert!(is_answered, "the further prompt is answered");
}

/// Returns a directive for the scripted model: a call of `task` with `prompt` for the child.
pub fn task(prompt: &str) -> String {
    task_for("general", prompt)
}

/// As [`task`], for another agent.
pub fn task_for(agent: &str, prompt: &str) -> String {
    let input = serde_json::json!({"description": "a subtask", "prompt": prompt, "subagent_type": agent});
    format!("@tool task {input}")
}

/// Returns a directive for the scripted model: a call of `bash`.
pub fn bash(command: &str) -> String {
    format!("@tool bash {}", serde_json::json!({"command": command}))
}
