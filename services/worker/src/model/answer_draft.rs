//! The parts of an answer while it streams: the received text, and how much of it has been sent and stored.

use crate::record::{Record, WriteError};
use bus::feed::Departure;
use domain::{
    conversation::{
        message::Assistant,
        part::{Body, Part, Reasoning, Span, Text, Tool, ToolState},
    },
    ids::{MessageId, PartId, Timestamp},
    limits,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of collected text above which it is sent at once.
const DELTA_BYTES: usize = 512;
/// Streamed text is stored as a chunk after this time; milliseconds.
const CHUNK_WINDOW_MS: u64 = 1_500;
/// A block that is over is stored after this time, if nothing follows with which it can be stored; milliseconds.
const END_WINDOW_MS: u64 = 25;

/// The kind of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
    Tool { call_id: String, name: String },
}

/// The start of a block.
pub(super) struct BlockStart {
    pub(super) index: u32,
    pub(super) id: PartId,
    pub(super) kind: Kind,
    pub(super) now: Timestamp,
}

/// A block as far as it was received.
#[derive(Debug)]
struct DraftBlock {
    index: u32,
    id: PartId,
    kind: Kind,
    text: String,
    /// Bytes of `text` without the white space at its end. That space is dropped if no text follows it.
    trimmed: usize,
    /// Bytes of `text` that were sent to subscribers.
    sent: usize,
    /// Bytes of `text` that Postgres stores.
    stored: usize,
    /// When the oldest unsaved byte arrived.
    unstored_since: Option<Instant>,
    metadata: Option<Map<String, Value>>,
    start: Timestamp,
    over: Option<BlockEnd>,
    /// Whether its whole part was returned to be stored.
    is_returned: bool,
}

#[derive(Debug, Clone, Copy)]
struct BlockEnd {
    at: Timestamp,
    /// When its part must be stored.
    store_at: Instant,
}

/// All blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerDraft {
    /// In the order in which they began.
    blocks: Vec<DraftBlock>,
    newest: Option<SentText>,
}

/// Text on its way to subscribers. What the model writes meanwhile is gathered.
#[derive(Debug)]
struct SentText {
    at: Instant,
    departure: Departure,
}

impl SentText {
    /// When the next text is sent although this one has not left.
    fn patience_ends_at(&self) -> Instant {
        self.at + Duration::from_millis(limits::DELTA_WAIT_MS)
    }
}

impl AnswerDraft {
    /// Begins a block and returns its part, which is still empty.
    pub(super) fn open(&mut self, start: BlockStart, message: &Assistant) -> Part {
        let BlockStart { index, id, kind, now } = start;
        let body = match &kind {
            Kind::Text => text_body(String::new(), None, Span { start: now, end: None }),
            Kind::Reasoning => reasoning_body(String::new(), None, Span { start: now, end: None }),
            Kind::Tool { call_id, name } => Body::Tool(Tool {
                call_id: call_id.clone(),
                tool: name.clone(),
                state: ToolState::Pending { input: json!({}), raw: String::new() },
            }),
        };
        let begun = part(id.clone(), message, body);
        self.blocks.push(DraftBlock {
            index,
            id,
            kind,
            text: String::new(),
            trimmed: 0,
            sent: 0,
            stored: 0,
            unstored_since: None,
            metadata: None,
            start: now,
            over: None,
            is_returned: false,
        });
        begun
    }

    pub(super) fn push(&mut self, index: u32, delta: &str) {
        if let Some(open) = self.find(index) {
            if !delta.trim_end().is_empty() {
                open.trimmed = open.text.len() + delta.trim_end().len();
            }
            open.text.push_str(delta);
            open.unstored_since.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn set_metadata(&mut self, index: u32, metadata: Option<Map<String, Value>>) {
        if let Some(open) = self.find(index).filter(|open| open.over.is_none()) {
            open.metadata = metadata;
        }
    }

    /// Notes that a block of text or reasoning is over. Tool calls end with the answer.
    pub(super) fn end(&mut self, index: u32, now: Timestamp) {
        if let Some(open) = self.find(index) {
            open.end(now);
        }
    }

    /// Returns the whole parts of the blocks that are over, each once.
    pub(super) fn take_ended(&mut self, message: &Assistant) -> Vec<Part> {
        self.blocks.iter_mut().filter_map(|open| open.take_ended(message)).collect()
    }

    /// Ends every open block of text or reasoning, and returns the whole parts that were not returned before.
    pub(super) fn end_all(&mut self, message: &Assistant, now: Timestamp) -> Vec<Part> {
        self.blocks.iter_mut().for_each(|open| open.end(now));
        self.take_ended(message)
    }

    /// Whether the part of a block that is over must be stored now.
    pub(super) fn has_late_end(&self, now: Instant) -> bool {
        self.blocks.iter().filter_map(DraftBlock::end_at).any(|at| at <= now)
    }

    /// Sends all text that subscribers do not have yet.
    pub(super) fn send_rest(&mut self, record: &Record, message: &MessageId) {
        for open in &mut self.blocks {
            if let Some(sent) = open.send(record, message) {
                self.newest = Some(sent);
            }
        }
    }

    /// Waits until the text that was sent has left this process, if there is more to send. Cancel-safe.
    pub(super) async fn departed(&self) {
        match &self.newest {
            Some(sent) if self.has_unsent() => sent.departure.over().await,
            Some(_) | None => std::future::pending().await,
        }
    }

    fn has_unsent(&self) -> bool {
        self.blocks.iter().any(|open| open.trimmed > open.sent)
    }

    /// Sends and stores text that has waited long enough, or that has become long enough.
    pub(super) async fn flush(
        &mut self,
        record: &Record,
        message: &MessageId,
        now: Instant,
    ) -> Result<(), WriteError> {
        // A person waits for the text: only while earlier text is under way, more is gathered.
        let is_free = self
            .newest
            .as_ref()
            .is_none_or(|sent| sent.departure.is_over() || sent.patience_ends_at() <= now);
        for open in &mut self.blocks {
            if (is_free || open.trimmed - open.sent >= DELTA_BYTES)
                && let Some(sent) = open.send(record, message)
            {
                self.newest = Some(sent);
            }
            let unstored = &open.text[open.stored..open.trimmed];
            let is_due = open.store_at().is_some_and(|at| at <= now);
            if open.over.is_none() && (unstored.len() >= limits::CHUNK_BYTES || is_due) {
                if !unstored.is_empty() {
                    record.chunk(&open.id, open.stored as u64, unstored).await?;
                }
                (open.stored, open.unstored_since) = (open.trimmed, None);
            }
        }
        Ok(())
    }

    pub(super) fn next_flush(&self) -> Option<Instant> {
        let sends = self.newest.iter().filter(|_| self.has_unsent()).map(SentText::patience_ends_at);
        let stores = self.blocks.iter().filter_map(DraftBlock::store_at);
        sends.chain(stores).chain(self.blocks.iter().filter_map(DraftBlock::end_at)).min()
    }

    pub(super) fn call_ids(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|open| match &open.kind {
            Kind::Tool { call_id, .. } => Some(call_id.as_str()),
            Kind::Text | Kind::Reasoning => None,
        })
    }

    /// Whether the answer has any text.
    pub(super) fn has_text(&self) -> bool {
        self.blocks.iter().any(|open| open.kind == Kind::Text && !open.text.trim().is_empty())
    }

    pub(super) fn has_tools(&self) -> bool {
        self.call_ids().next().is_some()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (&PartId, &Kind)> {
        self.blocks.iter().map(|open| (&open.id, &open.kind))
    }

    fn find(&mut self, index: u32) -> Option<&mut DraftBlock> {
        self.blocks.iter_mut().rev().find(|open| open.index == index)
    }
}

impl DraftBlock {
    fn end(&mut self, now: Timestamp) {
        if self.over.is_none() && !matches!(self.kind, Kind::Tool { .. }) {
            let store_at = Instant::now() + Duration::from_millis(END_WINDOW_MS);
            (self.over, self.unstored_since) = (Some(BlockEnd { at: now, store_at }), None);
        }
    }

    /// When its whole part must be stored, if it is over.
    fn end_at(&self) -> Option<Instant> {
        self.over.filter(|_| !self.is_returned).map(|end| end.store_at)
    }

    fn take_ended(&mut self, message: &Assistant) -> Option<Part> {
        let end = self.over.filter(|_| !self.is_returned)?;
        self.is_returned = true;
        let time = Span { start: self.start, end: Some(end.at) };
        let (id, metadata) = (self.id.clone(), self.metadata.clone());
        let trimmed = self.text[..self.trimmed].to_owned();
        let body = match self.kind {
            // A signature holds for the exact text.
            Kind::Reasoning if metadata.is_some() => reasoning_body(self.text.clone(), metadata, time),
            Kind::Reasoning => reasoning_body(trimmed, None, time),
            Kind::Text | Kind::Tool { .. } => text_body(trimmed, metadata, time),
        };
        Some(part(id, message, body))
    }

    /// Sends the text that subscribers do not have yet; `None`: they have it all.
    fn send(&mut self, record: &Record, message: &MessageId) -> Option<SentText> {
        let text = self.text.get(self.sent..self.trimmed).filter(|text| !text.is_empty())?.to_owned();
        let departure = record.delta(message, &self.id, self.sent as u64, text);
        self.sent = self.trimmed;
        Some(SentText { at: Instant::now(), departure })
    }

    fn store_at(&self) -> Option<Instant> {
        self.unstored_since.map(|since| since + Duration::from_millis(CHUNK_WINDOW_MS))
    }
}

/// A part of an answer's message.
pub(super) fn part(id: PartId, message: &Assistant, body: Body) -> Part {
    Part { id, session_id: message.session_id.clone(), message_id: message.id.clone(), body }
}

fn text_body(text: String, metadata: Option<Map<String, Value>>, time: Span) -> Body {
    Body::Text(Text { text, metadata, time: Some(time), ..Text::default() })
}

fn reasoning_body(text: String, metadata: Option<Map<String, Value>>, time: Span) -> Body {
    Body::Reasoning(Reasoning { text, time, metadata })
}

#[cfg(test)]
mod tests;
