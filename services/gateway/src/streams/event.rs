//! The items that subscribers get: stored events, fragments of the text of a part that is still streaming, and notices.

use bus::feed::Notice;
use bytes::Bytes;
use domain::{
    conversation::part::{Body, Part},
    event::StoredEvent,
    ids::{MessageId, PartId, Timestamp},
};

/// A stored event for subscribers. Clones share the properties, so one event serves thousands of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// Its position in the session.
    pub(crate) seq: u64,
    /// The epoch that wrote it.
    pub(crate) epoch: u64,
    pub(crate) id: String,
    /// The value of `type`.
    pub(crate) kind: String,
    /// The `properties` object as JSON.
    pub(crate) properties: Bytes,
    pub(crate) at: Timestamp,
}

impl From<StoredEvent> for StreamEvent {
    fn from(event: StoredEvent) -> Self {
        Self {
            seq: event.seq,
            epoch: event.epoch,
            id: event.id,
            kind: event.kind,
            properties: event.properties.into_bytes().into(),
            at: event.at,
        }
    }
}

/// A piece of the text of an open part. It is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) message_id: MessageId,
    pub(crate) part_id: PartId,
    /// Its offset in the part's UTF-8 text.
    pub(crate) offset_bytes: u64,
    pub(crate) text: String,
}

/// A notice about a session. It is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamNotice {
    pub(crate) id: String,
    /// The value of `type`.
    pub(crate) kind: String,
    /// The `properties` object as JSON.
    pub(crate) properties: String,
}

impl From<Notice> for StreamNotice {
    fn from(notice: Notice) -> Self {
        Self { id: notice.id, kind: notice.kind, properties: notice.properties.get().to_owned() }
    }
}

impl StreamNotice {
    /// About the memory that the notice takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.properties.len()
    }
}

impl StreamEvent {
    /// About the memory that the event takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.properties.len()
    }
}

impl Fragment {
    /// About the memory that the fragment takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

/// The stored text of a part that is still streaming; `None` for any other part.
pub(crate) fn open_text(part: &Part) -> Option<&str> {
    match &part.body {
        Body::Text(text) if text.time.is_some_and(|time| time.end.is_none()) => Some(&text.text),
        Body::Reasoning(thought) if thought.time.end.is_none() => Some(&thought.text),
        Body::Text(_)
        | Body::Reasoning(_)
        | Body::File(_)
        | Body::Tool(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Snapshot(_)
        | Body::Patch(_)
        | Body::Agent(_)
        | Body::Subtask(_)
        | Body::Retry(_)
        | Body::Compaction(_) => None,
    }
}
