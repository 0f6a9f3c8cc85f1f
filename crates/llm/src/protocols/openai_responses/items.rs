//! The items of an answer in OpenAI Responses. The provider sends each item three times: in pieces, whole at its end,
//! and whole in the list at the end of the response. The first version counts, and a later one fills in what never arrived.
//!
//! While an answer streams, `output_index` names an item: some proxies give every event another `item_id`. The list at the
//! end may omit items, so its entries are matched by `call_id`, id or text, never by position.

use crate::accumulate;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use domain::limits::MODEL_BLOCKS_MAX;
use serde_json::{Value, json};

/// Type of the item that holds reasoning, in answers and in requests.
pub(super) const REASONING: &str = "reasoning";
/// Type of the item that holds text, in answers and in requests.
pub(super) const MESSAGE: &str = "message";

/// Separates two paragraphs of reasoning.
const PARAGRAPH: &str = "\n\n";
/// Longest id of an item that OpenAI accepts in a request; bytes. A longer one is not sent.
const ITEM_ID_BYTES_MAX: usize = 64;

/// The items of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<Item>,
    next_index: u32,
}

#[derive(Debug)]
struct Item {
    names: Names,
    /// Our index, set once an event of the item was emitted.
    index: Option<u32>,
    /// The tool of a call.
    tool: String,
    /// The text or the arguments so far.
    text: String,
    /// The next piece of reasoning starts a new paragraph.
    is_between_parts: bool,
    is_closed: bool,
    /// Whether the list at the end contains it.
    is_listed: bool,
}

/// What the provider calls an item.
#[derive(Debug)]
struct Names {
    kind: Kind,
    /// The position, if the server sends positions.
    at: Option<u64>,
    /// Empty until it arrives.
    id: String,
    /// Of a call only.
    call_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call,
    /// Built-in tools of the provider and unknown types; ignored.
    Other,
}

impl Names {
    fn of_piece(kind: Kind, value: &Value) -> Self {
        let at = value.get("output_index").and_then(Value::as_u64);
        Self { kind, at, id: word(value, "item_id"), call_id: String::new() }
    }

    /// Those of a whole item, in an event or in the list.
    fn of_item(event: &Value, item: &Value) -> Self {
        let at = event.get("output_index").and_then(Value::as_u64);
        Self { kind: kind(item), at, id: word(item, "id"), call_id: word(item, "call_id") }
    }

    fn is_same_call(&self, other: &Self) -> bool {
        self.kind == Kind::Call
            && other.kind == Kind::Call
            && !self.call_id.is_empty()
            && self.call_id == other.call_id
    }

    /// Whether both names can belong to one item.
    fn fits(&self, other: &Self) -> bool {
        let is_unknown = self.call_id.is_empty() || other.call_id.is_empty();
        self.kind == other.kind && (is_unknown || self.call_id == other.call_id)
    }
}

impl Items {
    /// Handles the start of an item. Only a call is announced at once: other items may stay empty.
    pub(super) fn add(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let names = Names::of_item(value, &value["item"]);
        let is_it = |item: &Item| !item.is_closed && item.names.at == names.at && item.names.fits(&names);
        let found = names.at.and_then(|_| self.items.iter().rposition(is_it));
        let place = self.found_or_new(found, names)?;
        self.announce(place, &value["item"], events);
        Ok(())
    }

    /// Handles a piece of text.
    pub(super) fn text(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let place = self.place_of_piece(Kind::Message, value)?;
        self.tell(place, Kind::Message, delta(value), events);
        Ok(())
    }

    /// Handles the start of a paragraph of reasoning.
    pub(super) fn paragraph(&mut self, value: &Value) -> Result<(), Error> {
        let place = self.place_of_piece(Kind::Reasoning, value)?;
        let item = &mut self.items[place];
        item.is_between_parts = !item.text.is_empty();
        Ok(())
    }

    /// Handles a piece of reasoning.
    pub(super) fn reasoning(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let place = self.place_of_piece(Kind::Reasoning, value)?;
        let text = delta(value);
        let is_next_part = !text.is_empty() && std::mem::take(&mut self.items[place].is_between_parts);
        match is_next_part {
            true => self.tell(place, Kind::Reasoning, &format!("{PARAGRAPH}{text}"), events),
            false => self.tell(place, Kind::Reasoning, text, events),
        }
        Ok(())
    }

    /// Handles a piece of a call's arguments. The arguments of an unannounced call come again with the whole call.
    pub(super) fn arguments(&mut self, value: &Value, events: &mut Vec<Event>) {
        if let Some(place) = self.find_piece(&Names::of_piece(Kind::Call, value)) {
            self.tell(place, Kind::Call, delta(value), events);
        }
    }

    /// Handles a whole item.
    pub(super) fn done(&mut self, value: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        let names = Names::of_item(value, &value["item"]);
        let find = |is_it: &dyn Fn(&Item) -> bool| {
            self.items.iter().rposition(|item| item.names.fits(&names) && is_it(item))
        };
        let found = find(&|item| names.at.is_some() && item.names.at == names.at)
            .or_else(|| find(&|item| !names.call_id.is_empty() && !item.is_closed))
            .or_else(|| {
                find(&|item| names.kind != Kind::Call && !names.id.is_empty() && item.names.id == names.id)
            })
            .or_else(|| find(&|item| names.at.is_none() && !item.is_closed));
        let place = self.found_or_new(found, names)?;
        self.whole(place, &value["item"], events);
        Ok(())
    }

    /// Ends all items. The list of the `response` completes the open ones, and adds those that were not streamed.
    pub(super) fn close(&mut self, response: &Value, events: &mut Vec<Event>) -> Result<(), Error> {
        for value in response.get("output").and_then(Value::as_array).into_iter().flatten() {
            let names = Names::of_item(&Value::Null, value);
            let found = self.find_listed(&names, value);
            let place = self.found_or_new(found, names)?;
            self.items[place].is_listed = true;
            self.whole(place, value, events);
        }
        (0..self.items.len()).for_each(|place| self.end(place, None, events));
        (0..self.items.len()).for_each(|place| self.settle_namesake(place, events));
        Ok(())
    }

    /// The streamed item that an entry of the list repeats.
    fn find_listed(&self, names: &Names, value: &Value) -> Option<usize> {
        let find = |is_it: &dyn Fn(&Item) -> bool| {
            let is_candidate = |item: &Item| !item.is_listed && item.names.fits(names) && is_it(item);
            self.items.iter().position(is_candidate)
        };
        if names.kind == Kind::Call && !names.call_id.is_empty() {
            return find(&|item| item.names.call_id == names.call_id)
                .or_else(|| find(&|item| item.names.call_id.is_empty()));
        }
        let text = whole_text(names.kind, value);
        find(&|item| !names.id.is_empty() && item.names.id == names.id)
            // A proxy may give an item another id at the end than before.
            .or_else(|| find(&|item| item.text == text))
            .or_else(|| find(&|item| names.id.is_empty() || item.names.id.is_empty()))
    }

    fn whole(&mut self, place: usize, value: &Value, events: &mut Vec<Event>) {
        self.announce(place, value, events);
        let item = &self.items[place];
        let kind = item.names.kind;
        if item.is_closed {
            return;
        }
        if item.text.is_empty() {
            self.tell(place, kind, &whole_text(kind, value), events);
        }
        let details = match kind {
            Kind::Message => identity(value),
            Kind::Reasoning => encrypted(value),
            Kind::Call | Kind::Other => None,
        };
        if kind == Kind::Reasoning && details.is_some() {
            self.open(place, events);
        }
        self.end(place, details, events);
    }

    /// The place of the item that is `found`, or of a new one. Completes its names.
    fn found_or_new(&mut self, found: Option<usize>, names: Names) -> Result<usize, Error> {
        if let Some(place) = found {
            let known = &mut self.items[place].names;
            for (known, new_name) in [(&mut known.id, names.id), (&mut known.call_id, names.call_id)] {
                if known.is_empty() {
                    *known = new_name;
                }
            }
            return Ok(place);
        }
        if self.items.len() >= MODEL_BLOCKS_MAX {
            let text = format!("the answer has more than {MODEL_BLOCKS_MAX} items");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        self.items.push(Item {
            names,
            index: None,
            tool: String::new(),
            text: String::new(),
            is_between_parts: false,
            is_closed: false,
            is_listed: false,
        });
        Ok(self.items.len() - 1)
    }

    fn place_of_piece(&mut self, kind: Kind, value: &Value) -> Result<usize, Error> {
        let names = Names::of_piece(kind, value);
        self.found_or_new(self.find_piece(&names), names)
    }

    /// The item of a piece. A server that omits the position and the id means the newest item.
    fn find_piece(&self, names: &Names) -> Option<usize> {
        let find = |is_it: &dyn Fn(&Item) -> bool| self.items.iter().rposition(is_it);
        if names.at.is_some() {
            return find(&|item| item.names.at == names.at);
        }
        find(&|item| !names.id.is_empty() && item.names.id == names.id)
            .or_else(|| find(&|item| !item.is_closed && item.names.kind == names.kind))
    }

    /// Announces a call once its id and tool are known. A call with the id of an earlier one waits for the end of the
    /// response.
    fn announce(&mut self, place: usize, value: &Value, events: &mut Vec<Event>) {
        let item = &self.items[place];
        if item.names.kind != Kind::Call || item.index.is_some() {
            return;
        }
        self.items[place].tool = word(value, "name");
        if self.namesakes(place).next().is_none() {
            // Servers without a call id have one for the item.
            let names = &self.items[place].names;
            let id = if names.call_id.is_empty() { names.id.clone() } else { names.call_id.clone() };
            self.start_call(place, id, events);
        }
    }

    fn start_call(&mut self, place: usize, id: String, events: &mut Vec<Event>) {
        let index = self.next_index;
        self.next_index += 1;
        let item = &mut self.items[place];
        item.index = Some(index);
        events.push(Event::ToolStart { index, id, name: item.tool.clone() });
    }

    /// The announced calls with the same `call_id`.
    fn namesakes(&self, place: usize) -> impl Iterator<Item = &Item> {
        let names = &self.items[place].names;
        self.items.iter().filter(move |item| item.index.is_some() && item.names.is_same_call(names))
    }

    /// Announces a call that waited because an earlier one has its id. If both ask for the same, they are one call, which
    /// must not run twice; otherwise this one gets an id of its own.
    fn settle_namesake(&mut self, place: usize, events: &mut Vec<Event>) {
        let item = &self.items[place];
        if item.names.kind != Kind::Call || item.index.is_some() {
            return;
        }
        let input = accumulate::arguments(&item.text);
        let asks_the_same =
            |other: &Item| other.tool == item.tool && accumulate::arguments(&other.text) == input;
        if self.namesakes(place).any(asks_the_same) {
            return;
        }
        let id = format!("{}_{place}", item.names.call_id);
        let arguments = item.text.clone();
        self.start_call(place, id, events);
        if let Some(index) = self.items[place].index {
            events.push(Event::ToolArguments { index, delta: arguments });
            events.push(Event::BlockEnd { index, details: None });
        }
    }

    /// Emits a piece of an open item. A piece that does not fit the item's kind is ignored.
    fn tell(&mut self, place: usize, kind: Kind, text: &str, events: &mut Vec<Event>) {
        let item = &mut self.items[place];
        if text.is_empty() || item.names.kind != kind || item.is_closed || kind == Kind::Other {
            return;
        }
        item.text.push_str(text);
        // A call that is not announced keeps its arguments.
        if kind == Kind::Call && item.index.is_none() {
            return;
        }
        let index = self.open(place, events);
        let delta = text.to_owned();
        events.push(match kind {
            Kind::Reasoning => Event::Reasoning { index, delta },
            Kind::Call => Event::ToolArguments { index, delta },
            Kind::Message | Kind::Other => Event::Text { index, delta },
        });
    }

    /// Our index of an item; starts the item if necessary.
    fn open(&mut self, place: usize, events: &mut Vec<Event>) -> u32 {
        let next = self.next_index;
        let item = &mut self.items[place];
        let index = *item.index.get_or_insert(next);
        if index == next {
            self.next_index += 1;
            events.push(match item.names.kind {
                Kind::Reasoning => Event::ReasoningStart { index },
                Kind::Message | Kind::Call | Kind::Other => Event::TextStart { index },
            });
        }
        index
    }

    fn end(&mut self, place: usize, details: Option<Value>, events: &mut Vec<Event>) {
        let item = &mut self.items[place];
        if std::mem::replace(&mut item.is_closed, true) {
            return;
        }
        let Some(index) = item.index else { return };
        events.push(match item.names.kind {
            Kind::Reasoning => Event::ReasoningEnd { index, signature: None, redacted: None, details },
            Kind::Message | Kind::Call | Kind::Other => Event::BlockEnd { index, details },
        });
    }
}

fn word(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn kind(item: &Value) -> Kind {
    match item.get("type").and_then(Value::as_str) {
        Some(MESSAGE) => Kind::Message,
        Some(REASONING) => Kind::Reasoning,
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

/// What identifies a text in later requests: its id, and whether it is a comment or the answer.
fn identity(item: &Value) -> Option<Value> {
    let mut identity = json!({"type": MESSAGE, "id": own_id(item, "msg_")?});
    for key in ["phase", "status"] {
        if let Some(word) = item.get(key).and_then(Value::as_str) {
            identity[key] = json!(word);
        }
    }
    Some(json!([identity]))
}

/// What the model needs back to continue its reasoning.
fn encrypted(item: &Value) -> Option<Value> {
    let content = item.get("encrypted_content").and_then(Value::as_str).filter(|text| !text.is_empty())?;
    let summary = item.get("summary").filter(|summary| summary.is_array());
    let summary = summary.cloned().unwrap_or_else(|| json!([]));
    let mut reasoning = json!({"type": REASONING, "summary": summary, "encrypted_content": content});
    if let Some(id) = own_id(item, "rs_") {
        reasoning["id"] = json!(id);
    }
    Some(json!([reasoning]))
}

/// The id of an item, unless it is one that OpenAI refuses in a request. Proxies make up such ids.
fn own_id<'a>(item: &'a Value, prefix: &str) -> Option<&'a str> {
    let id = item.get("id").and_then(Value::as_str)?;
    (id.starts_with(prefix) && id.len() <= ITEM_ID_BYTES_MAX).then_some(id)
}
