//! Converts the chunks of OpenAI Chat Completions (and compatible) answers to our events.
//! <https://platform.openai.com/docs/api-reference/chat-streaming>. `request` builds the request.
//!
//! The protocol has no blocks. A block starts with its first piece. Text and reasoning end when a block of another
//! kind starts. Tool calls may be interleaved and end with the answer.

use super::{calls, reasoning};
use crate::error::{Error, ErrorKind};
use crate::error::{broken, truncated};
use crate::event::{Event, Finish};
use crate::protocols::classify;
use crate::{json, sse};
use domain::limits::MODEL_BLOCKS_MAX;
use domain::money::Tokens;
use serde_json::Value;

/// Decodes one answer, chunk by chunk.
#[derive(Debug, Default)]
pub struct Decoder {
    is_started: bool,
    is_finished: bool,
    /// At least one chunk had `choices`: the server speaks this protocol.
    has_choices: bool,
    finish_reason: Option<String>,
    next_index: u32,
    text: Option<u32>,
    reasoning: Option<reasoning::Block>,
    calls: calls::Calls,
}

impl Decoder {
    /// Whether the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Appends the events in `event` to `events`.
    ///
    /// # Errors
    /// `Protocol`, `TooLarge`, `Truncated` (the end mark without a finish reason), or the error of an error chunk.
    pub fn push(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if event.data.trim() == sse::DONE {
            return self.done(events);
        }
        let value =
            json::parse_event(&event.data).ok_or_else(|| broken("a chunk is not JSON", &event.data))?;
        let error = match event.name.as_str() {
            "error" => Some(classify::from_event(&value)),
            _ => classify::find_error(&value),
        };
        if let Some(error) = error {
            // Usage may come with the error, and is billed.
            self.usage(&value, events);
            return Err(error);
        }
        if !value.is_object() {
            return Err(broken("a chunk is not an object", &event.data));
        }
        self.chunk(&value, events)
    }

    /// Call it when the connection has ended. Some servers omit the end mark, so a finish reason is enough.
    ///
    /// # Errors
    /// `Truncated` without a finish reason.
    pub fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if self.finish_reason.is_some() { self.done(events) } else { Err(truncated()) }
    }

    fn chunk(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let choices = value.get("choices").and_then(Value::as_array);
        self.has_choices |= choices.is_some();
        // With `n = 1` there is one choice. Ignore any others.
        let choice = choices.and_then(|choices| {
            choices.iter().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or_default() == 0)
        });
        let model = value.get("model").and_then(Value::as_str).unwrap_or_default();
        if !self.is_started && (choice.is_some() || (self.has_choices && !model.is_empty())) {
            self.is_started = true;
            let response_id = value.get("id").and_then(Value::as_str).unwrap_or_default();
            self.calls.name_after(response_id);
            events.push(Event::Started { model: model.to_owned() });
        }
        self.usage(value, events);
        let Some(choice) = choice else { return Ok(()) };
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        self.reasoning(delta, events);
        self.content(delta, events);
        self.tool_calls(delta, events)?;
        if self.next_index as usize > MODEL_BLOCKS_MAX {
            let text = format!("the answer has more than {MODEL_BLOCKS_MAX} blocks");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            Some("error") => Err(classify::from_event(choice)),
            // DeepSeek and Z.AI stop an answer with these words when their own servers fail.
            Some(raw @ ("insufficient_system_resource" | "network_error")) => {
                Err(Error::new(ErrorKind::Overloaded, format!("the provider stopped the answer: {raw}")))
            }
            Some(reason) if !reason.is_empty() => {
                self.finish_reason = Some(reason.to_owned());
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn usage(&mut self, value: &Value, events: &mut Vec<Event>) {
        // Groq and Moonshot report usage in fields of their own.
        let places = ["/usage", "/x_groq/usage", "/choices/0/usage"];
        let found =
            places.into_iter().find_map(|place| value.pointer(place).filter(|usage| usage.is_object()));
        events.extend(found.map(|usage| Event::Usage(tokens(usage))));
    }

    fn reasoning(&mut self, delta: &Value, events: &mut Vec<Event>) {
        let (text, details) = reasoning::read(delta);
        if text.is_empty() && details.is_empty() {
            return;
        }
        if self.reasoning.is_none() {
            // A chunk with details only may arrive in the middle of a text and does not end it.
            if !text.is_empty() {
                self.close_text(events);
            }
            let index = self.new_index();
            events.push(Event::ReasoningStart { index });
            self.reasoning = Some(reasoning::Block::new(index));
        }
        if let Some(block) = &mut self.reasoning {
            block.merge(details);
            let index = block.index;
            events.extend((!text.is_empty()).then_some(Event::Reasoning { index, delta: text }));
        }
    }

    fn content(&mut self, delta: &Value, events: &mut Vec<Event>) {
        let text = match delta.get("content") {
            Some(Value::String(text)) => text.clone(),
            // Mistral sends a list of parts. `reasoning` reads its thinking.
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
            }
            Some(_) | None => String::new(),
        };
        let refusal = delta.get("refusal").and_then(Value::as_str).unwrap_or_default();
        for delta in [text.as_str(), refusal].into_iter().filter(|text| !text.is_empty()) {
            let index = match self.text {
                Some(index) => index,
                None => {
                    self.close_reasoning(events);
                    let index = self.new_index();
                    self.text = Some(index);
                    events.push(Event::TextStart { index });
                    index
                }
            };
            events.push(Event::Text { index, delta: delta.to_owned() });
        }
    }

    fn tool_calls(&mut self, delta: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let Some(deltas) = delta.get("tool_calls").and_then(Value::as_array) else { return Ok(()) };
        if !deltas.is_empty() {
            self.close_reasoning(events);
            self.close_text(events);
        }
        for delta in deltas {
            self.calls.push(delta, &mut self.next_index, events)?;
        }
        Ok(())
    }

    fn done(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let Some(raw) = self.finish_reason.take() else {
            // A proxy that lost its upstream still writes its end mark.
            return Err(match self.has_choices {
                true => truncated(),
                false => Error::new(ErrorKind::Protocol, "the server does not speak OpenAI Chat Completions"),
            });
        };
        self.close_reasoning(events);
        self.close_text(events);
        self.calls.close(&mut self.next_index, events);
        self.is_finished = true;
        events.push(Event::Finished { reason: finish(&raw), raw });
        Ok(())
    }

    fn close_text(&mut self, events: &mut Vec<Event>) {
        events.extend(self.text.take().map(|index| Event::BlockEnd { index, details: None }));
    }

    fn close_reasoning(&mut self, events: &mut Vec<Event>) {
        events.extend(self.reasoning.take().map(reasoning::Block::end));
    }

    fn new_index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        index
    }
}

fn finish(raw: &str) -> Finish {
    match raw {
        "stop" | "eos" => Finish::Stop,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" | "model_length" | "max_tokens" => Finish::Length,
        // The second word is Z.AI's.
        "content_filter" | "sensitive" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}

/// Where vendors report the tokens that they read from a cache: OpenAI, DeepSeek, Moonshot.
const CACHE_READ_PATHS: [&str; 3] =
    ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];

/// `prompt_tokens` includes the cached tokens and `completion_tokens` the reasoning. Our counts do not overlap.
fn tokens(usage: &Value) -> Tokens {
    let count = |path: &str| json::tokens(usage, path);
    let cache_read = CACHE_READ_PATHS.into_iter().find_map(count).unwrap_or_default();
    let cache_write = count("/prompt_tokens_details/cache_write_tokens").unwrap_or_default();
    let reasoning = count("/completion_tokens_details/reasoning_tokens").unwrap_or_default();
    let prompt = count("/prompt_tokens").unwrap_or_default();
    Tokens {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output: count("/completion_tokens").unwrap_or_default().saturating_sub(reasoning),
        reasoning,
        cache_read,
        cache_write,
    }
}

#[cfg(test)]
mod tests;
