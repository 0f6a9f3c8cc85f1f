//! The items of a session's stream, in the CLI's own types and as the JSON lines of `--json`.

use crate::terminal::paint::one_line;
use anyhow::{Context as _, Result};
use rpc::v1::{SubscribeResponse, subscribe_response};
use serde_json::{Value, json};

/// Characters of the cause of a lost connection.
const CAUSE_CHARS: usize = 60;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Event(Event),
    Delta(Delta),
    Notice(Notice),
    /// The server is alive, and this is its newest event's position.
    Heartbeat(u64),
    /// The connection was lost and will be tried again.
    Reconnecting(Reconnect),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reconnect {
    /// The number of this attempt, from 1.
    pub tries: u32,
    /// After so many, the command gives up.
    pub tries_max: u32,
    pub cause: String,
}

impl Reconnect {
    /// The loss in one line.
    pub(crate) fn line(&self) -> String {
        let Self { tries, tries_max, cause } = self;
        format!("connection lost ({}), trying again ({tries} of {tries_max})", one_line(cause, CAUSE_CHARS))
    }
}

/// A durable fact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub seq: u64,
    pub epoch: u64,
    pub kind: String,
    pub properties: Value,
    pub at_ms: i64,
}

/// A live fragment of a part's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delta {
    pub message_id: String,
    pub part_id: String,
    pub field: String,
    pub offset_bytes: u64,
    pub text: String,
}

/// What the session waits for. Not stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub kind: String,
    pub properties: Value,
}

impl Item {
    /// Reads a response of the server; `None` for kinds that only a newer server sends.
    pub(crate) fn from_response(response: SubscribeResponse) -> Result<Option<Self>> {
        Ok(match response.item {
            Some(subscribe_response::Item::Event(event)) => Some(Self::Event(Event {
                properties: serde_json::from_slice(&event.properties_json)
                    .context("read an event's properties")?,
                seq: event.seq,
                epoch: event.epoch,
                kind: event.kind,
                at_ms: event.at_ms,
            })),
            Some(subscribe_response::Item::Delta(delta)) => Some(Self::Delta(Delta {
                message_id: delta.message_id,
                part_id: delta.part_id,
                field: delta.field,
                offset_bytes: delta.offset_bytes,
                text: delta.text,
            })),
            Some(subscribe_response::Item::Notice(notice)) => Some(Self::Notice(Notice {
                properties: serde_json::from_slice(&notice.properties_json)
                    .context("read a notice's properties")?,
                kind: notice.kind,
            })),
            Some(subscribe_response::Item::Heartbeat(heartbeat)) => {
                Some(Self::Heartbeat(heartbeat.event_seq))
            }
            None => None,
        })
    }

    /// Returns the object for `--json`: `{"seq":1,"epoch":1,"type":"session.status","properties":{…},"at_ms":1}` or
    /// `{"type":"delta","delta":{"messageID":…,"partID":…,"field":"text","offset_bytes":0,"text":"…"}}` or
    /// `{"type":"notice","notice":{"type":"flotilla.workspace.progress","properties":{…}}}`; nothing for other items.
    pub(crate) fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::Event(Event { seq, epoch, kind, properties, at_ms }) => {
                json!({"seq": seq, "epoch": epoch, "type": kind, "properties": properties, "at_ms": at_ms})
            }
            Self::Delta(Delta { message_id, part_id, field, offset_bytes, text }) => {
                json!({"type": "delta", "delta": {
                    "messageID": message_id, "partID": part_id, "field": field, "offset_bytes": offset_bytes, "text": text,
                }})
            }
            Self::Notice(Notice { kind, properties }) => {
                json!({"type": "notice", "notice": {"type": kind, "properties": properties}})
            }
            Self::Heartbeat(_) | Self::Reconnecting(_) => return None,
        })
    }
}
