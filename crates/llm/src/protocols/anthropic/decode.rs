//! Converts the events of Anthropic Messages answers to ours. <https://docs.anthropic.com/en/api/messages-streaming>
//! `request` builds the request.

use crate::error::{Error, ErrorKind};
use crate::error::{broken, truncated};
use crate::event::{Event, Finish};
use crate::protocols::classify;
use crate::{json, sse};
use domain::limits::{MODEL_BLOCKS_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use domain::money::Tokens;
use serde_json::Value;
use std::collections::BTreeMap;

/// Decodes one answer, event by event.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    message_id: String,
    /// Open blocks by the provider's index.
    open: BTreeMap<u64, Block>,
    /// Whole blocks that came with the start of the message, until they are emitted.
    held: BTreeMap<u64, Value>,
    blocks: usize,
    next_index: u32,
    tokens: Tokens,
    stop_reason: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    Open,
    Finished,
}

#[derive(Debug)]
enum Block {
    Text {
        index: u32,
    },
    Reasoning {
        index: u32,
        signature: String,
        redacted: Option<String>,
    },
    Tool {
        index: u32,
        argument_bytes: usize,
        whole: String,
    },
    /// A block type that Flotilla does not know; it is ignored.
    Unknown,
}

impl Decoder {
    /// Whether `message_stop` has arrived.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Appends the events in `event` to `events`.
    ///
    /// # Errors
    /// `Protocol`, `TooLarge`, or the error of an error event.
    pub fn push(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished() {
            return Ok(());
        }
        let value =
            json::parse_event(&event.data).ok_or_else(|| broken("an event is not JSON", &event.data))?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(event.name.as_str());
        match (kind, &self.state) {
            ("error", _) => Err(classify::from_event(&value)),
            ("ping", _) => Ok(()),
            ("message_start", State::Waiting) => {
                self.start(&value, events);
                Ok(())
            }
            ("message_start", _) => self.restart(&value, events),
            ("content_block_start", State::Open) => self.block_start(&value, events),
            ("content_block_delta", State::Open) => self.block_delta(&value, events),
            ("content_block_stop", State::Open) => self.block_stop(&value, events),
            ("message_delta", State::Open) => {
                self.message_delta(&value, events);
                Ok(())
            }
            ("message_stop", State::Open) => self.stop(events),
            (
                "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop",
                _,
            ) => Err(broken("an event comes before the message starts", &event.data)),
            // The API may add event types at any time.
            _ => classify::find_error(&value).map_or(Ok(()), Err),
        }
    }

    /// Call it when the connection has ended.
    ///
    /// # Errors
    /// `Truncated` unless the answer is complete.
    pub fn end(&mut self, _events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished() { Ok(()) } else { Err(truncated()) }
    }

    fn start(&mut self, value: &Value, events: &mut Vec<Event>) {
        self.state = State::Open;
        let message = &value["message"];
        text(message, "id").clone_into(&mut self.message_id);
        events.push(Event::Started { model: text(message, "model").to_owned() });
        self.usage(&message["usage"], events);
        let content = message.get("content").and_then(Value::as_array).into_iter().flatten().cloned();
        self.held = (0..).zip(content).collect();
    }

    /// Handles another start inside the message. Some proxies repeat it; only the start of a different message is an
    /// error.
    fn restart(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let message = &value["message"];
        if self.message_id.is_empty() || text(message, "id") != self.message_id {
            return Err(broken("a second message starts inside the first", &value.to_string()));
        }
        self.usage(&message["usage"], events);
        Ok(())
    }

    /// Emits the held blocks before position `end`. Deferred tool calls arrive this way. A proxy may instead stream the
    /// same blocks again: `block_start` drops those.
    fn emit_held(&mut self, end: u64, events: &mut Vec<Event>) -> Result<(), Error> {
        let later = self.held.split_off(&end);
        for (at, content) in std::mem::replace(&mut self.held, later) {
            self.begin(at, &content, events)?;
            if let Some(block) = self.open.remove(&at) {
                close(block, events);
            }
        }
        Ok(())
    }

    /// Merges usage numbers. Later numbers replace earlier ones: `message_delta` may correct `message_start`.
    fn usage(&mut self, usage: &Value, events: &mut Vec<Event>) {
        let count = |key: &str| json::tokens(usage, &format!("/{key}"));
        let split = || {
            let split = usage.get("cache_creation")?.as_object()?;
            Some(split.values().filter_map(|part| json::tokens(part, "")).fold(0_u64, u64::saturating_add))
        };
        let before = self.tokens;
        self.tokens = Tokens {
            input: count("input_tokens").unwrap_or(before.input),
            output: count("output_tokens").unwrap_or(before.output),
            reasoning: 0,
            cache_read: count("cache_read_input_tokens").unwrap_or(before.cache_read),
            cache_write: count("cache_creation_input_tokens").or_else(split).unwrap_or(before.cache_write),
        };
        if self.tokens != before {
            events.push(Event::Usage(self.tokens));
        }
    }

    fn block_start(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let (at, content) = (position(value)?, &value["content_block"]);
        let is_same = |held: &Value| ["type", "id"].iter().all(|key| text(held, key) == text(content, key));
        if self.held.get(&at).is_some_and(is_same) {
            self.held.remove(&at);
        }
        self.emit_held(at.saturating_add(1), events)?;
        self.begin(at, content, events)
    }

    fn begin(&mut self, at: u64, content: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        self.blocks += 1;
        if self.blocks > MODEL_BLOCKS_MAX {
            let text = format!("the answer has more than {MODEL_BLOCKS_MAX} blocks");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        if self.open.contains_key(&at) {
            return Err(broken("a block starts twice", &content.to_string()));
        }
        let index = self.next_index;
        let block = match text(content, "type") {
            "text" => {
                events.push(Event::TextStart { index });
                events.extend(delta_of(content, "text").map(|delta| Event::Text { index, delta }));
                Block::Text { index }
            }
            "thinking" => {
                events.push(Event::ReasoningStart { index });
                events.extend(delta_of(content, "thinking").map(|delta| Event::Reasoning { index, delta }));
                Block::Reasoning { index, signature: text(content, "signature").to_owned(), redacted: None }
            }
            "redacted_thinking" => {
                events.push(Event::ReasoningStart { index });
                Block::Reasoning {
                    index,
                    signature: String::new(),
                    redacted: Some(text(content, "data").to_owned()),
                }
            }
            "tool_use" => {
                let (id, name) = (text(content, "id").to_owned(), text(content, "name").to_owned());
                events.push(Event::ToolStart { index, id, name });
                // Some proxies send the whole input here and no deltas.
                let input =
                    content.get("input").filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
                Block::Tool {
                    index,
                    argument_bytes: 0,
                    whole: input.map(Value::to_string).unwrap_or_default(),
                }
            }
            _ => Block::Unknown,
        };
        if !matches!(block, Block::Unknown) {
            self.next_index += 1;
        }
        self.open.insert(at, block);
        Ok(())
    }

    fn block_delta(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let delta = &value["delta"];
        let Some(block) = self.open.get_mut(&position(value)?) else {
            return Err(broken("a delta belongs to no open block", &value.to_string()));
        };
        match (text(delta, "type"), block) {
            ("text_delta", Block::Text { index }) => {
                let index = *index;
                events.extend(delta_of(delta, "text").map(|delta| Event::Text { index, delta }));
            }
            ("thinking_delta", Block::Reasoning { index, .. }) => {
                let index = *index;
                events.extend(delta_of(delta, "thinking").map(|delta| Event::Reasoning { index, delta }));
            }
            ("signature_delta", Block::Reasoning { signature, .. }) => {
                signature.push_str(text(delta, "signature"))
            }
            ("input_json_delta", Block::Tool { index, argument_bytes, .. }) => {
                let index = *index;
                if let Some(delta) = delta_of(delta, "partial_json") {
                    *argument_bytes += delta.len();
                    if *argument_bytes > TOOL_ARGUMENTS_BYTES_MAX {
                        let text = format!(
                            "a tool call's arguments are longer than {TOOL_ARGUMENTS_BYTES_MAX} bytes"
                        );
                        return Err(Error::new(ErrorKind::TooLarge, text));
                    }
                    events.push(Event::ToolArguments { index, delta });
                }
            }
            (_, Block::Unknown) => {}
            ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta", _) => {
                return Err(broken("a delta does not fit its block", &value.to_string()));
            }
            // Citations and future delta types.
            _ => {}
        }
        Ok(())
    }

    fn block_stop(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        match self.open.remove(&position(value)?) {
            Some(block) => {
                close(block, events);
                Ok(())
            }
            None => Err(broken("a block stops that is not open", &value.to_string())),
        }
    }

    fn message_delta(&mut self, value: &Value, events: &mut Vec<Event>) {
        if let Some(reason) = value.pointer("/delta/stop_reason").and_then(Value::as_str) {
            self.stop_reason = Some(reason.to_owned());
        }
        self.usage(&value["usage"], events);
    }

    fn stop(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        // A proxy that lost its upstream may still write its own message_stop. Without a stop reason the answer is
        // incomplete.
        let raw = self.stop_reason.take().ok_or_else(truncated)?;
        self.emit_held(u64::MAX, events)?;
        for (_, block) in std::mem::take(&mut self.open) {
            close(block, events);
        }
        self.state = State::Finished;
        events.push(Event::Finished { reason: finish(&raw), raw });
        Ok(())
    }
}

fn close(block: Block, events: &mut Vec<Event>) {
    match block {
        Block::Text { index } => events.push(Event::BlockEnd { index, details: None }),
        Block::Reasoning { index, signature, redacted } => {
            let signature = (!signature.is_empty()).then_some(signature);
            events.push(Event::ReasoningEnd { index, signature, redacted, details: None });
        }
        Block::Tool { index, argument_bytes, whole } => {
            if argument_bytes == 0 && !whole.is_empty() {
                events.push(Event::ToolArguments { index, delta: whole });
            }
            events.push(Event::BlockEnd { index, details: None });
        }
        Block::Unknown => {}
    }
}

fn finish(raw: &str) -> Finish {
    match raw {
        "end_turn" | "stop_sequence" | "pause_turn" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}

fn position(value: &Value) -> Result<u64, Error> {
    let index = value.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| broken("a block event has no index", &value.to_string()))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn delta_of(value: &Value, key: &str) -> Option<String> {
    Some(text(value, key)).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests;
