//! Reasoning in Chat Completions: every vendor has its own field for it.

use crate::event::Event;
use serde_json::{Map, Value};

#[derive(Debug)]
pub(super) struct Block {
    pub(super) index: u32,
    details: Vec<Value>,
}

impl Block {
    pub(super) fn new(index: u32) -> Self {
        Self { index, details: Vec::new() }
    }

    /// Adds pieces of `reasoning_details`. The pieces of one detail arrive in sequence and are joined, because the
    /// provider wants the whole detail back.
    pub(super) fn merge(&mut self, pieces: Vec<Map<String, Value>>) {
        for piece in pieces {
            let same = |last: &Map<String, Value>| {
                let equal = |key: &str| last.get(key) == piece.get(key);
                equal("type")
                    && equal("index")
                    && piece.get("id").is_none_or(|id| id.is_null() || equal("id"))
            };
            match self.details.last_mut().and_then(Value::as_object_mut).filter(|last| same(last)) {
                Some(last) => merge_detail(last, piece),
                None => self.details.push(Value::Object(piece)),
            }
        }
    }

    pub(super) fn end(self) -> Event {
        let details = (!self.details.is_empty()).then_some(Value::Array(self.details));
        Event::ReasoningEnd { index: self.index, signature: None, redacted: None, details }
    }
}

fn merge_detail(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(whole)), Value::String(more))
                if matches!(key.as_str(), "text" | "summary" | "data") =>
            {
                whole.push_str(&more);
            }
            (_, value) => {
                last.insert(key, value);
            }
        }
    }
}

/// The reasoning text of a chunk's `delta`, and the pieces of its `reasoning_details`. Some servers send the same text
/// in several fields; only the first field counts.
pub(super) fn read(delta: &Value) -> (String, Vec<Map<String, Value>>) {
    let pieces: Vec<Map<String, Value>> = delta
        .get("reasoning_details")
        .and_then(Value::as_array)
        .map(|pieces| pieces.iter().filter_map(|piece| piece.as_object().cloned()).collect())
        .unwrap_or_default();
    let field =
        |key: &str| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let text = field("reasoning_content").or_else(|| field("reasoning")).unwrap_or_else(|| {
        let of_piece = |piece: &Map<String, Value>| {
            let text = ["text", "summary"].iter().find_map(|key| piece.get(*key)?.as_str());
            text.unwrap_or_default().to_owned()
        };
        let of_pieces: String = pieces.iter().map(of_piece).collect();
        if of_pieces.is_empty() { thinking_parts(delta) } else { of_pieces }
    });
    (text, pieces)
}

/// Mistral: `content: [{"type":"thinking","thinking":[{"type":"text","text":"…"}]}]`.
fn thinking_parts(delta: &Value) -> String {
    let parts = delta.get("content").and_then(Value::as_array).into_iter().flatten();
    let inner = parts.filter_map(|part| part.get("thinking").and_then(Value::as_array)).flatten();
    inner.filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
}
