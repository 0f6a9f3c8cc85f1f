//! The items of an answer in OpenAI Responses. The provider sends each item three times: in pieces, whole at its end,
//! and whole at the end of the response. The first version counts, and a later one fills in what never arrived.

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use domain::limits::MODEL_BLOCKS_MAX;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Type of the item that holds reasoning, in answers and in requests.
pub(super) const REASONING: &str = "reasoning";

/// Separates two paragraphs of reasoning.
const PARAGRAPH: &str = "\n\n";

/// The items of one answer, by the provider's position.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: BTreeMap<u64, Item>,
    next_index: u32,
    has_calls: bool,
}

#[derive(Debug)]
struct Item {
    kind: Kind,
    /// Our index, set once an event of the item was emitted.
    index: Option<u32>,
    /// Whether any text or arguments of the item were emitted.
    has_text: bool,
    /// The next piece of reasoning starts a new paragraph.
    is_between_parts: bool,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call,
    /// Built-in tools of the provider and unknown types; ignored.
    Other,
}

impl Items {
    /// Whether the answer calls tools of the request.
    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// Handles the start of an item. Only a call is announced at once: other items may stay empty.
    pub(super) fn add(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let (at, item) = (self.position(value), &value["item"]);
        self.insert(at, kind(item))?;
        self.announce(at, item, events);
        Ok(())
    }

    /// Handles a piece of text.
    pub(super) fn text(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let at = self.position(value);
        self.insert(at, Kind::Message)?;
        self.tell(at, Kind::Message, delta(value), events);
        Ok(())
    }

    /// Handles the start of a paragraph of reasoning.
    pub(super) fn paragraph(&mut self, value: &Value) -> Result<(), Error> {
        let at = self.position(value);
        self.insert(at, Kind::Reasoning)?;
        if let Some(item) = self.items.get_mut(&at) {
            item.is_between_parts = item.has_text;
        }
        Ok(())
    }

    /// Handles a piece of reasoning.
    pub(super) fn reasoning(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let at = self.position(value);
        self.insert(at, Kind::Reasoning)?;
        let text = delta(value);
        let item = self.items.get_mut(&at).filter(|_| !text.is_empty());
        match item.is_some_and(|item| std::mem::take(&mut item.is_between_parts)) {
            true => self.tell(at, Kind::Reasoning, &format!("{PARAGRAPH}{text}"), events),
            false => self.tell(at, Kind::Reasoning, text, events),
        }
        Ok(())
    }

    /// Handles a piece of a call's arguments. The arguments of an unannounced call come again with the whole call.
    pub(super) fn arguments(&mut self, value: &Value, events: &mut Vec<Event>) {
        let at = self.position(value);
        if self.items.get(&at).is_some_and(|item| item.index.is_some()) {
            self.tell(at, Kind::Call, delta(value), events);
        }
    }

    /// Handles a whole item.
    pub(super) fn done(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let at = self.position(value);
        self.whole(at, &value["item"], events)
    }

    /// Ends all items. The `response` completes the open ones.
    pub(super) fn close(&mut self, response: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let output = response.get("output").and_then(Value::as_array).into_iter().flatten();
        for (at, item) in (0_u64..).zip(output) {
            self.whole(at, item, events)?;
        }
        let positions: Vec<u64> = self.items.keys().copied().collect();
        positions.into_iter().for_each(|at| self.end(at, None, events));
        Ok(())
    }

    fn whole(&mut self, at: u64, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        self.insert(at, kind(value))?;
        self.announce(at, value, events);
        let Some(item) = self.items.get(&at).filter(|item| !item.is_closed) else { return Ok(()) };
        let kind = item.kind;
        if !item.has_text {
            self.tell(at, kind, &whole_text(kind, value), events);
        }
        let details = if kind == Kind::Reasoning { encrypted(value) } else { None };
        if details.is_some() {
            self.open(at, events);
        }
        self.end(at, details, events);
        Ok(())
    }

    fn insert(&mut self, at: u64, kind: Kind) -> Result<(), Error> {
        if self.items.len() >= MODEL_BLOCKS_MAX && !self.items.contains_key(&at) {
            let text = format!("the answer has more than {MODEL_BLOCKS_MAX} items");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        let new = Item { kind, index: None, has_text: false, is_between_parts: false, is_closed: false };
        self.items.entry(at).or_insert(new);
        Ok(())
    }

    /// Announces a call once its id and tool are known.
    fn announce(&mut self, at: u64, value: &Value, events: &mut Vec<Event>) {
        let index = self.next_index;
        let Some(item) =
            self.items.get_mut(&at).filter(|item| item.kind == Kind::Call && item.index.is_none())
        else {
            return;
        };
        item.index = Some(index);
        self.next_index += 1;
        self.has_calls = true;
        let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        // Servers without a call id have one for the item.
        let id = if word("call_id").is_empty() { word("id") } else { word("call_id") };
        events.push(Event::ToolStart { index, id, name: word("name") });
    }

    /// Emits a piece of an open item. A piece that does not fit the item's kind is ignored.
    fn tell(&mut self, at: u64, kind: Kind, text: &str, events: &mut Vec<Event>) {
        let fits = self.items.get(&at).is_some_and(|item| item.kind == kind && !item.is_closed);
        if text.is_empty() || !fits || kind == Kind::Other {
            return;
        }
        let index = self.open(at, events);
        if let Some(item) = self.items.get_mut(&at) {
            item.has_text = true;
        }
        let delta = text.to_owned();
        events.push(match kind {
            Kind::Reasoning => Event::Reasoning { index, delta },
            Kind::Call => Event::ToolArguments { index, delta },
            Kind::Message | Kind::Other => Event::Text { index, delta },
        });
    }

    /// Our index of the item at `at`; starts the item if necessary.
    fn open(&mut self, at: u64, events: &mut Vec<Event>) -> u32 {
        let next = self.next_index;
        let Some(item) = self.items.get_mut(&at) else { return next };
        let index = *item.index.get_or_insert(next);
        if index == next {
            self.next_index += 1;
            events.push(match item.kind {
                Kind::Reasoning => Event::ReasoningStart { index },
                Kind::Message | Kind::Call | Kind::Other => Event::TextStart { index },
            });
        }
        index
    }

    fn end(&mut self, at: u64, details: Option<Value>, events: &mut Vec<Event>) {
        let Some(item) = self.items.get_mut(&at).filter(|item| !item.is_closed) else { return };
        item.is_closed = true;
        let Some(index) = item.index else { return };
        events.push(match item.kind {
            Kind::Reasoning => Event::ReasoningEnd { index, signature: None, redacted: None, details },
            Kind::Message | Kind::Call | Kind::Other => Event::BlockEnd { index },
        });
    }

    /// The provider's position. A server that omits it means the newest item.
    fn position(&self, value: &Value) -> u64 {
        let given = value.get("output_index").and_then(Value::as_u64);
        given.unwrap_or_else(|| self.items.last_key_value().map_or(0, |(at, _)| *at))
    }
}

fn kind(item: &Value) -> Kind {
    match item.get("type").and_then(Value::as_str) {
        Some("message") => Kind::Message,
        Some("reasoning") => Kind::Reasoning,
        Some("function_call") => Kind::Call,
        Some(_) | None => Kind::Other,
    }
}

fn delta(value: &Value) -> &str {
    value.get("delta").and_then(Value::as_str).unwrap_or_default()
}

fn whole_text(kind: Kind, item: &Value) -> String {
    let texts = |key: &str| -> Vec<&str> {
        let parts = item.get(key).and_then(Value::as_array).into_iter().flatten();
        let text = |part| ["text", "refusal"].iter().find_map(|key| Value::get(part, key)?.as_str());
        parts.filter_map(text).collect()
    };
    match kind {
        Kind::Message => texts("content").concat(),
        Kind::Reasoning => {
            let summary = texts("summary").join(PARAGRAPH);
            if summary.is_empty() { texts("content").join(PARAGRAPH) } else { summary }
        }
        Kind::Call => match item.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            // A value that is not an object must not be replaced by an empty one.
            Some(other) => other.to_string(),
        },
        Kind::Other => String::new(),
    }
}

/// What the model needs back to continue its reasoning: the item without its id. The id means nothing to a server that
/// does not store responses.
fn encrypted(item: &Value) -> Option<Value> {
    let content = item.get("encrypted_content").and_then(Value::as_str).filter(|text| !text.is_empty())?;
    let summary = item.get("summary").filter(|summary| summary.is_array());
    let summary = summary.cloned().unwrap_or_else(|| json!([]));
    Some(json!([{"type": REASONING, "summary": summary, "encrypted_content": content}]))
}
