//! Converts the events of OpenAI Responses answers to ours.
//! <https://platform.openai.com/docs/api-reference/responses-streaming>. `request` builds the request.
//!
//! An answer is a list of items. Each becomes a block when its first piece arrives. `items` tells them apart.

use super::items::Items;
use crate::error::{Error, ErrorKind};
use crate::error::{broken, truncated};
use crate::event::{Event, Finish};
use crate::protocols::classify;
use crate::{json, sse};
use domain::money::Tokens;
use serde_json::{Value, json};

/// Decodes one answer, event by event.
#[derive(Debug, Default)]
pub struct Decoder {
    is_started: bool,
    is_finished: bool,
    /// At least one event did not match this protocol.
    is_foreign: bool,
    items: Items,
}

impl Decoder {
    /// Whether the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Appends the events in `event` to `events`.
    ///
    /// # Errors
    /// `Protocol`, `TooLarge`, or the error of an error event or a failed response.
    pub fn push(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if event.data.trim() == sse::DONE {
            return self.end(events);
        }
        let value =
            json::parse_event(&event.data).ok_or_else(|| broken("an event is not JSON", &event.data))?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(event.name.as_str());
        if kind == "error" {
            return Err(classify::from_event(&value));
        }
        if !kind.starts_with("response.") {
            self.is_foreign |= kind.is_empty();
            return classify::find_error(&value).map_or(Ok(()), Err);
        }
        self.start(&value["response"], events);
        match kind {
            "response.output_item.added" => self.items.add(&value, events),
            "response.output_item.done" => self.items.done(&value, events),
            "response.output_text.delta" | "response.refusal.delta" => self.items.text(&value, events),
            "response.reasoning_summary_part.added" => self.items.paragraph(&value),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.items.reasoning(&value, events)
            }
            "response.function_call_arguments.delta" => {
                self.items.arguments(&value, events);
                Ok(())
            }
            "response.completed" | "response.incomplete" => self.finish(kind, &value["response"], events),
            "response.failed" => Err(self.failed(&value["response"], events)),
            // The ends of parts repeat streamed content. Events of built-in tools and unknown kinds are ignored.
            _ => Ok(()),
        }
    }

    /// Call it when the connection has ended.
    ///
    /// # Errors
    /// `Truncated` unless the answer is complete; `Protocol` if no event matched this protocol.
    pub fn end(&mut self, _events: &mut Vec<Event>) -> Result<(), Error> {
        match (self.is_finished, self.is_foreign && !self.is_started) {
            (true, _) => Ok(()),
            (false, true) => Err(foreign()),
            (false, false) => Err(truncated()),
        }
    }

    fn start(&mut self, response: &Value, events: &mut Vec<Event>) {
        if !self.is_started {
            self.is_started = true;
            let model = response.get("model").and_then(Value::as_str).unwrap_or_default();
            events.push(Event::Started { model: model.to_owned() });
        }
    }

    fn finish(&mut self, kind: &str, response: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        events.extend(usage(response));
        self.items.close(response, events)?;
        let (reason, raw) = match kind {
            "response.completed" => (Finish::Stop, "completed"),
            _ => match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
                Some(raw @ "max_output_tokens") => (Finish::Length, raw),
                Some(raw @ "content_filter") => (Finish::ContentFilter, raw),
                // The reason is unknown, but the answer is certainly incomplete.
                Some(raw) => (Finish::Length, raw),
                None => (Finish::Length, "incomplete"),
            },
        };
        self.is_finished = true;
        events.push(Event::Finished { reason, raw: raw.to_owned() });
        Ok(())
    }

    fn failed(&self, response: &Value, events: &mut Vec<Event>) -> Error {
        // The tokens of a failed answer are billed.
        events.extend(usage(response));
        match response.get("error").filter(|error| !error.is_null()) {
            Some(error) => classify::from_event(&json!({"error": error})),
            None => Error::new(ErrorKind::Server, "the provider failed without a reason"),
        }
    }
}

fn foreign() -> Error {
    Error::new(ErrorKind::Protocol, "the server does not speak OpenAI Responses")
}

/// `input_tokens` includes the cached tokens and `output_tokens` the reasoning. Our counts do not overlap.
fn usage(response: &Value) -> Option<Event> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    let count = |path: &str| json::tokens(usage, path).unwrap_or_default();
    let cache_read = count("/input_tokens_details/cached_tokens");
    let cache_write = count("/input_tokens_details/cache_write_tokens");
    let reasoning = count("/output_tokens_details/reasoning_tokens");
    Some(Event::Usage(Tokens {
        input: count("/input_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
        output: count("/output_tokens").saturating_sub(reasoning),
        reasoning,
        cache_read,
        cache_write,
    }))
}

#[cfg(test)]
mod tests;
