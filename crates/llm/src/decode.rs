//! Decodes the bytes of an answer to events, for every protocol. Pure: `client` handles the connection and its
//! timeouts.

mod bare;
mod bounds;
mod halves;

use crate::error::{Error, ErrorKind, QUOTE_BYTES_MAX};
use crate::event::{Event, Finish};
use crate::protocols::classify::not_a_stream;
use crate::protocols::{anthropic, gemini, openai_chat, openai_responses};
use crate::provider::Protocol;
use crate::sse;
use bare::BareText;
use bounds::Bounds;
use halves::Halves;

/// Bytes of one line of a model's event stream: a whole tool argument, escaped, still fits. A longer one fails the turn.
/// Beyond it: `answer_too_large`.
const MODEL_LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one model answer on the wire: the framing is many times larger than the text, and no real answer comes
/// near this bound. A longer one fails the turn. Beyond it: `answer_too_large`.
const MODEL_ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug)]
pub struct Decoder {
    lines: sse::Decoder,
    wire: Wire,
    bounds: Bounds,
    halves: Halves,
    bare: BareText,
    has_calls: bool,
    bytes: usize,
    beginning: Vec<u8>,
}

#[derive(Debug)]
enum Wire {
    Anthropic(anthropic::decode::Decoder),
    OpenAiChat(openai_chat::decode::Decoder),
    OpenAiResponses(openai_responses::decode::Decoder),
    Gemini(gemini::decode::Decoder),
}

impl Decoder {
    /// A decoder for one answer.
    pub fn new(protocol: Protocol) -> Self {
        let wire = match protocol {
            Protocol::Anthropic => Wire::Anthropic(anthropic::decode::Decoder::default()),
            Protocol::OpenAiChat => Wire::OpenAiChat(openai_chat::decode::Decoder::default()),
            Protocol::OpenAiResponses => Wire::OpenAiResponses(openai_responses::decode::Decoder::default()),
            Protocol::Gemini => Wire::Gemini(gemini::decode::Decoder::default()),
        };
        let lines = sse::Decoder::new(MODEL_LINE_BYTES_MAX);
        Self {
            lines,
            wire,
            bounds: Bounds::default(),
            halves: Halves::default(),
            bare: BareText::default(),
            has_calls: false,
            bytes: 0,
            beginning: Vec::new(),
        }
    }

    /// Appends the events in `bytes` to `events`. Bytes after the end of the answer are ignored.
    ///
    /// # Errors
    /// `Protocol`, `TooLarge`, or an error that the server reports, as an event or as bare JSON between the events. The
    /// events before it have been appended. Do not push again afterwards.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MODEL_ANSWER_BYTES_MAX {
            let text = format!("the answer is longer than {MODEL_ANSWER_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        let quote_bytes = bytes.len().min(QUOTE_BYTES_MAX - self.beginning.len());
        self.beginning.extend_from_slice(&bytes[..quote_bytes]);
        let mut lines = Vec::new();
        let read = self.lines.push(bytes, &mut lines);
        for line in lines {
            self.event(&line, events)?;
            if self.is_finished() {
                return Ok(());
            }
        }
        read.map_err(error_of)
    }

    /// Appends the last events. Call it when the connection has ended.
    ///
    /// # Errors
    /// `Truncated` unless the answer is complete, `Protocol` if the bytes were not an event stream, or an error that the
    /// server reports at the end.
    pub fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished() {
            return Ok(());
        }
        let is_plausible = self.lines.is_plausible();
        // A last event without its blank line counts if it is complete: a cut JSON object never parses.
        for last in self.lines.end().iter().filter(|last| last.is_bare || is_whole(last)) {
            self.event(last, events)?;
        }
        if !is_plausible {
            return Err(not_a_stream(&self.beginning));
        }
        let from = events.len();
        let outcome = match &mut self.wire {
            Wire::Anthropic(decoder) => decoder.end(events),
            Wire::OpenAiChat(decoder) => decoder.end(events),
            Wire::OpenAiResponses(decoder) => decoder.end(events),
            Wire::Gemini(decoder) => decoder.end(events),
        };
        self.check(events, from).and(outcome)
    }

    /// Whether the answer is complete and the connection is no longer needed.
    pub fn is_finished(&self) -> bool {
        match &self.wire {
            Wire::Anthropic(decoder) => decoder.is_finished(),
            Wire::OpenAiChat(decoder) => decoder.is_finished(),
            Wire::OpenAiResponses(decoder) => decoder.is_finished(),
            Wire::Gemini(decoder) => decoder.is_finished(),
        }
    }

    fn event(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Error> {
        if event.is_bare {
            return self.bare.push(&event.data).map_or(Ok(()), Err);
        }
        let from = events.len();
        let outcome = match &mut self.wire {
            Wire::Anthropic(decoder) => decoder.push(event, events),
            Wire::OpenAiChat(decoder) => decoder.push(event, events),
            Wire::OpenAiResponses(decoder) => decoder.push(event, events),
            Wire::Gemini(decoder) => decoder.push(event, events),
        };
        self.check(events, from).and(outcome)
    }

    /// Joins the characters of the events from position `from` on, and checks them against the bounds. Makes the reason of a complete answer agree with its
    /// tool calls, whatever word the provider uses.
    fn check(&mut self, events: &mut Vec<Event>, from: usize) -> Result<(), Error> {
        self.halves.join(events, from);
        self.bounds.check(events, from)?;
        self.has_calls |= events[from..].iter().any(|event| matches!(event, Event::ToolStart { .. }));
        if let Some(Event::Finished { reason, .. }) = events[from..].last_mut() {
            *reason = match (*reason, self.has_calls) {
                (Finish::Stop | Finish::ToolCalls | Finish::Other, true) => Finish::ToolCalls,
                (Finish::Stop | Finish::ToolCalls, false) => Finish::Stop,
                (reason @ (Finish::Length | Finish::ContentFilter | Finish::Other), _) => reason,
            };
        }
        Ok(())
    }
}

fn is_whole(event: &sse::Event) -> bool {
    event.data.trim() == sse::DONE || serde_json::from_str::<serde::de::IgnoredAny>(&event.data).is_ok()
}

fn error_of(error: sse::StreamError) -> Error {
    match error {
        sse::StreamError::TooLong { .. } => Error::new(ErrorKind::TooLarge, error.to_string()),
        sse::StreamError::NotUtf8 => Error::new(ErrorKind::Protocol, error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
