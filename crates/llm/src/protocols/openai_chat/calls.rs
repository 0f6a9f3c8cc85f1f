//! Tool calls in Chat Completions: pieces that identify their call by index, by id, by both or by neither.

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use domain::limits::{MODEL_BLOCKS_MAX, TOOL_ARGUMENTS_BYTES_MAX};
use serde_json::Value;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    response_id: String,
}

#[derive(Debug)]
struct Call {
    /// The provider's index.
    at: Option<u64>,
    /// The provider's id; empty until it arrives.
    id: String,
    /// Our index, set once the call has been announced.
    index: Option<u32>,
    /// Arguments that arrived before the name.
    held: String,
    argument_bytes: usize,
}

impl Calls {
    /// Derives missing ids from `response_id`, so that they differ between answers.
    pub(super) fn name_after(&mut self, response_id: &str) {
        response_id.clone_into(&mut self.response_id);
    }

    /// Handles one element of `delta.tool_calls`.
    pub(super) fn push(
        &mut self,
        delta: &Value,
        next_index: &mut u32,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let at = delta.get("index").and_then(Value::as_u64);
        let id = delta.get("id").and_then(Value::as_str).unwrap_or_default();
        let name = delta.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
        let arguments = match delta.pointer("/function/arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            // Some local servers send the object itself. Any other value is not an object and must not be replaced by
            // an empty one.
            Some(other) => other.to_string(),
        };
        let position = self.position(at, id, name);
        if self.calls.len() > MODEL_BLOCKS_MAX {
            let text = format!("the answer has more than {MODEL_BLOCKS_MAX} tool calls");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        if self.calls[position].id.is_empty() {
            id.clone_into(&mut self.calls[position].id);
        }
        self.calls[position].argument_bytes += arguments.len();
        if self.calls[position].argument_bytes > TOOL_ARGUMENTS_BYTES_MAX {
            let text = format!("a tool call's arguments are longer than {TOOL_ARGUMENTS_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        match self.calls[position].index {
            Some(index) => {
                events.extend(
                    (!arguments.is_empty()).then_some(Event::ToolArguments { index, delta: arguments }),
                );
            }
            None => {
                self.calls[position].held.push_str(&arguments);
                if !name.is_empty() {
                    self.announce(position, name, next_index, events);
                }
            }
        }
        Ok(())
    }

    /// Ends all calls. A call that never got a name is announced without one, so it never runs.
    pub(super) fn close(&mut self, next_index: &mut u32, events: &mut Vec<Event>) {
        for position in 0..self.calls.len() {
            if self.calls[position].index.is_none() {
                self.announce(position, "", next_index, events);
            }
            events.extend(self.calls[position].index.map(|index| Event::BlockEnd { index, details: None }));
        }
    }

    fn position(&mut self, at: Option<u64>, id: &str, name: &str) -> usize {
        let found = match (at, id) {
            // Gemini's compatible server gives every call the index 0: a different id with a name starts another call.
            (Some(at), id) => self.calls.iter().rposition(|call| call.at == Some(at)).filter(|position| {
                let known = &self.calls[*position].id;
                id.is_empty() || known.is_empty() || known == id || name.is_empty()
            }),
            (None, "") if name.is_empty() => self.calls.len().checked_sub(1),
            (None, "") => None,
            (None, id) => self.calls.iter().rposition(|call| call.id == id),
        };
        found.unwrap_or_else(|| {
            let call = Call { at, id: id.to_owned(), index: None, held: String::new(), argument_bytes: 0 };
            self.calls.push(call);
            self.calls.len() - 1
        })
    }

    fn announce(&mut self, position: usize, name: &str, next_index: &mut u32, events: &mut Vec<Event>) {
        let index = *next_index;
        *next_index += 1;
        let id = self.unique_id(position);
        let call = &mut self.calls[position];
        call.index = Some(index);
        call.id.clone_from(&id);
        events.push(Event::ToolStart { index, id, name: name.to_owned() });
        let held = std::mem::take(&mut call.held);
        events.extend((!held.is_empty()).then_some(Event::ToolArguments { index, delta: held }));
    }

    fn unique_id(&self, position: usize) -> String {
        let id = self.calls[position].id.as_str();
        let is_taken = self.calls[..position].iter().any(|call| call.id == id);
        match (id.is_empty(), is_taken) {
            (true, _) => format!("call_{}_{position}", self.response_id),
            (false, true) => format!("{id}_{position}"),
            (false, false) => id.to_owned(),
        }
    }
}
