//! Converts the chunks of Google Gemini answers to our events.
//! <https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent>. `request` builds the request.
//!
//! The protocol has neither blocks nor an end mark. A block starts with the first part of its kind and ends with a
//! part of another kind. The answer ends with the connection, provided that a finish reason was sent; older models send
//! one in each chunk. A thought signature must be sent back with its original part; see [`SIGNATURE`].

use super::arguments::Arguments;
use crate::error::{Error, ErrorKind};
use crate::error::{broken, truncated};
use crate::event::{Event, Finish};
use crate::protocols::classify;
use crate::{json, sse};
use domain::money::Tokens;
use serde_json::{Value, json};

/// The type of a reasoning detail that holds a signature: `{"type":"thought_signature","of":"call","signature":"…"}`.
/// The signature belongs to the part after the reasoning (`of` is `call`), to the text before it (`text`), or to the
/// reasoning itself (`thought`). It is stored with the provider's reasoning, so it goes back only to the model that
/// made it.
pub(super) const SIGNATURE: &str = "thought_signature";

/// Decodes one answer, chunk by chunk.
#[derive(Debug, Default)]
pub struct Decoder {
    is_started: bool,
    is_finished: bool,
    /// At least one chunk matched this protocol.
    is_known: bool,
    /// At least one chunk did not match.
    is_foreign: bool,
    response_id: String,
    finish_reason: Option<String>,
    next_index: u32,
    calls: usize,
    open: Open,
    /// The signature of the open text.
    text_signature: Option<String>,
}

#[derive(Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Text {
        index: u32,
    },
    Reasoning {
        index: u32,
        signature: Option<String>,
    },
    /// A call whose arguments arrive in pieces.
    Call {
        index: u32,
        arguments: Arguments,
    },
}

impl Decoder {
    /// Whether the answer is complete. That is known only after the connection has ended.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Appends the events in `event` to `events`.
    ///
    /// # Errors
    /// `Protocol`, `ContentFilter` (the prompt was blocked), a retryable `Invalid` (the model wrote a call that Gemini
    /// could not parse), or the error of an error chunk.
    pub fn push(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if event.data.trim() == sse::DONE {
            return self.end(events);
        }
        let value =
            json::parse_event(&event.data).ok_or_else(|| broken("a chunk is not JSON", &event.data))?;
        if event.name == "error" {
            return Err(classify::from_event(&value));
        }
        if let Some(error) = classify::find_error(&value) {
            return Err(error);
        }
        let candidates = value.get("candidates").and_then(Value::as_array);
        let blocked = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str);
        if let Some(reason) = blocked.filter(|_| candidates.is_none_or(Vec::is_empty)) {
            // The tokens of a refused prompt may be billed.
            events.extend(usage(&value));
            let text = format!("the provider's content filter refused the request: {reason}");
            return Err(Error::new(ErrorKind::ContentFilter, text));
        }
        self.is_known |= candidates.is_some() || value.get("usageMetadata").is_some();
        self.is_foreign = !self.is_known;
        if self.is_known {
            self.start(&value, events);
            events.extend(usage(&value));
        }
        // The request asks for one candidate. Ignore any others.
        let candidate = candidates.and_then(|candidates| {
            candidates.iter().find(|one| one.get("index").and_then(Value::as_u64).unwrap_or_default() == 0)
        });
        candidate.map_or(Ok(()), |candidate| self.candidate(candidate, events))
    }

    /// Call it when the connection has ended.
    ///
    /// # Errors
    /// `Truncated` unless a finish reason was sent; `Protocol` if no chunk matched this protocol.
    pub fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.is_finished {
            return Ok(());
        }
        if self.is_foreign {
            return Err(Error::new(ErrorKind::Protocol, "the server does not speak Gemini"));
        }
        let raw = self.finish_reason.take().ok_or_else(truncated)?;
        self.close(events);
        self.is_finished = true;
        events.push(Event::Finished { reason: finish(&raw), raw });
        Ok(())
    }

    fn start(&mut self, value: &Value, events: &mut Vec<Event>) {
        if self.is_started {
            return;
        }
        self.is_started = true;
        let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.response_id = word("responseId");
        events.push(Event::Started { model: word("modelVersion") });
    }

    fn candidate(&mut self, candidate: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.part(part, events)?;
        }
        match candidate.get("finishReason").and_then(Value::as_str) {
            // Another sample usually succeeds.
            Some(
                raw @ ("MALFORMED_FUNCTION_CALL"
                | "MALFORMED_RESPONSE"
                | "UNEXPECTED_TOOL_CALL"
                | "TOO_MANY_TOOL_CALLS"),
            ) => {
                let message = candidate.get("finishMessage").and_then(Value::as_str).unwrap_or_default();
                let text = format!("the model wrote an answer that cannot be read ({raw}): {message}");
                Err(Error::new(ErrorKind::Invalid, text).with_retryable(Some(true)))
            }
            Some(raw) if !raw.is_empty() => {
                self.finish_reason = Some(raw.to_owned());
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn part(&mut self, part: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let word = |key: &str| part.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let signature =
            ["thoughtSignature", "thought_signature"].into_iter().find_map(word).map(str::to_owned);
        if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
            return self.call(call, signature, events);
        }
        let text = word("text").unwrap_or_default();
        if part.get("thought").and_then(Value::as_bool) == Some(true) {
            self.thought(text, signature, events);
        } else if part.get("text").is_some() {
            self.text(text, signature, events);
        }
        // Images, code that ran at Google and future part types are ignored.
        Ok(())
    }

    fn thought(&mut self, text: &str, signature: Option<String>, events: &mut Vec<Event>) {
        if text.is_empty() && signature.is_none() {
            return;
        }
        if !matches!(self.open, Open::Reasoning { .. }) {
            self.close(events);
            let index = self.new_index();
            events.push(Event::ReasoningStart { index });
            self.open = Open::Reasoning { index, signature: None };
        }
        if let Open::Reasoning { index, signature: known } = &mut self.open {
            let index = *index;
            *known = signature.or(known.take());
            events.extend((!text.is_empty()).then(|| Event::Reasoning { index, delta: text.to_owned() }));
        }
    }

    fn text(&mut self, text: &str, signature: Option<String>, events: &mut Vec<Event>) {
        if !text.is_empty() {
            let index = match self.open {
                Open::Text { index } => index,
                Open::Nothing | Open::Reasoning { .. } | Open::Call { .. } => {
                    self.close(events);
                    let index = self.new_index();
                    events.push(Event::TextStart { index });
                    self.open = Open::Text { index };
                    index
                }
            };
            events.push(Event::Text { index, delta: text.to_owned() });
        }
        // The signature often arrives with an empty text at the very end.
        self.text_signature = signature.or(self.text_signature.take());
    }

    fn call(
        &mut self,
        call: &Value,
        signature: Option<String>,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        let goes_on = call.get("willContinue").and_then(Value::as_bool) == Some(true);
        let pieces = call.get("partialArgs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if name.is_empty()
            && let Open::Call { arguments, .. } = &mut self.open
        {
            arguments.add(pieces)?;
            if !goes_on {
                arguments.complete();
                self.close(events);
            }
            return Ok(());
        }
        let index = self.begin_call(call, signature, events);
        let mut arguments = Arguments::default();
        arguments.add(pieces)?;
        if goes_on {
            self.open = Open::Call { index, arguments };
            return Ok(());
        }
        // A value that is not an object must not be replaced by an empty one.
        let whole = match call.get("args") {
            Some(args) if !args.is_null() => args.to_string(),
            Some(_) | None => {
                arguments.complete();
                arguments.into_text()
            }
        };
        events.push(Event::ToolArguments { index, delta: whole });
        events.push(Event::BlockEnd { index, details: None });
        Ok(())
    }

    /// Starts a call, after its signature.
    fn begin_call(&mut self, call: &Value, signature: Option<String>, events: &mut Vec<Event>) -> u32 {
        if let Some(signature) = signature {
            let details = Some(detail("call", &signature));
            match std::mem::take(&mut self.open) {
                // The reasoning that led to the call.
                Open::Reasoning { index, signature: None } => events.push(reasoning_end(index, details)),
                open => {
                    self.open = open;
                    self.close(events);
                    self.signed(details, events);
                }
            }
        }
        self.close(events);
        let word = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = match word("id") {
            id if id.is_empty() => format!("call_{}_{}", self.response_id, self.calls),
            id => id,
        };
        self.calls += 1;
        let index = self.new_index();
        events.push(Event::ToolStart { index, id, name: word("name") });
        index
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        match std::mem::take(&mut self.open) {
            Open::Nothing => {}
            Open::Text { index } => events.push(Event::BlockEnd { index, details: None }),
            Open::Reasoning { index, signature } => {
                events.push(reasoning_end(index, signature.map(|signature| detail("thought", &signature))));
            }
            Open::Call { index, arguments } => {
                events.push(Event::ToolArguments { index, delta: arguments.into_text() });
                events.push(Event::BlockEnd { index, details: None });
            }
        }
        if let Some(signature) = self.text_signature.take() {
            self.signed(Some(detail("text", &signature)), events);
        }
    }

    /// Adds reasoning without text, to carry its signature.
    fn signed(&mut self, details: Option<Value>, events: &mut Vec<Event>) {
        let index = self.new_index();
        events.push(Event::ReasoningStart { index });
        events.push(reasoning_end(index, details));
    }

    fn new_index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        index
    }
}

fn detail(of: &str, signature: &str) -> Value {
    json!([{"type": SIGNATURE, "of": of, "signature": signature}])
}

fn reasoning_end(index: u32, details: Option<Value>) -> Event {
    Event::ReasoningEnd { index, signature: None, redacted: None, details }
}

fn finish(raw: &str) -> Finish {
    match raw {
        "STOP" => Finish::Stop,
        "MAX_TOKENS" => Finish::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}

/// The prompt count includes the cached tokens; the candidates count excludes the thoughts. Each chunk reports the
/// totals so far; a chunk without counts reports nothing.
fn usage(value: &Value) -> Option<Event> {
    let usage = value.get("usageMetadata").filter(|usage| usage.get("promptTokenCount").is_some())?;
    let count = |path: &str| json::tokens(usage, path).unwrap_or_default();
    let cache_read = count("/cachedContentTokenCount");
    let prompt = count("/promptTokenCount").saturating_add(count("/toolUsePromptTokenCount"));
    Some(Event::Usage(Tokens {
        input: prompt.saturating_sub(cache_read),
        output: count("/candidatesTokenCount"),
        reasoning: count("/thoughtsTokenCount"),
        cache_read,
        cache_write: 0,
    }))
}

#[cfg(test)]
mod tests;
