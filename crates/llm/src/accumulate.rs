//! Folds the events of an answer into the answer, and decides which tool calls may run: only those of an answer that
//! ended normally and was not cut off.

use crate::event::{Event, Finish};
use crate::json;
use domain::money::Tokens;
use serde_json::Value;

/// Collects events. Push every event, then call `finish`, whether the stream ended well or not.
#[derive(Debug, Default)]
pub struct Accumulator {
    model: String,
    blocks: Vec<(u32, Open)>,
    tokens: Option<Tokens>,
    finish: Option<(Finish, String)>,
}

#[derive(Debug)]
enum Open {
    Text(String),
    Reasoning { text: String, signature: Option<String>, redacted: Option<String>, details: Option<Value> },
    Tool { id: String, name: String, arguments: String },
}

/// An answer, complete or as far as it was received.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccumulatedAnswer {
    /// The model's name as the provider reports it; may be empty.
    pub model: String,
    /// In the order in which the blocks started.
    pub blocks: Vec<Block>,
    /// The latest reported usage.
    pub tokens: Option<Tokens>,
    /// Why the model stopped, as our reason and as the provider's word. `None` if the answer is incomplete.
    pub finish: Option<(Finish, String)>,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Text(String),
    /// Reasoning, with what the provider needs to get it back.
    Reasoning {
        /// May be empty.
        text: String,
        /// See [`Event::ReasoningEnd`].
        signature: Option<String>,
        /// See [`Event::ReasoningEnd`].
        redacted: Option<String>,
        /// See [`Event::ReasoningEnd`].
        details: Option<Value>,
    },
    /// A call that may run.
    ToolCall {
        /// The provider's id.
        id: String,
        name: String,
        /// The arguments, always an object.
        input: Value,
    },
    /// A call that must not run.
    InvalidToolCall {
        /// The provider's id.
        id: String,
        name: String,
        /// The arguments as far as they were received.
        raw: String,
        /// Why the call must not run.
        reason: Invalid,
    },
}

/// Why a tool call must not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The answer is incomplete, or was cut off by the length limit or a content filter.
    Incomplete,
    /// The arguments are not a JSON object.
    NotAnObject,
    /// The model did not name a tool.
    Nameless,
}

impl Invalid {
    /// The text that the model receives as the result of the call.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "The tool call was cut off before it was complete. It was not executed.",
            Self::NotAnObject => "The arguments of the tool call are not a JSON object. It was not executed.",
            Self::Nameless => "The tool call names no tool. It was not executed.",
        }
    }
}

impl Accumulator {
    /// Takes the next event. Events of blocks that never started are ignored.
    pub fn push(&mut self, event: &Event) {
        match event {
            Event::Started { model } => model.clone_into(&mut self.model),
            Event::TextStart { index } => self.blocks.push((*index, Open::Text(String::new()))),
            Event::ReasoningStart { index } => {
                let block =
                    Open::Reasoning { text: String::new(), signature: None, redacted: None, details: None };
                self.blocks.push((*index, block));
            }
            Event::ToolStart { index, id, name } => {
                let block = Open::Tool { id: id.clone(), name: name.clone(), arguments: String::new() };
                self.blocks.push((*index, block));
            }
            Event::Text { index, delta } => {
                if let Some(Open::Text(text)) = self.find(*index) {
                    text.push_str(delta);
                }
            }
            Event::Reasoning { index, delta } => {
                if let Some(Open::Reasoning { text, .. }) = self.find(*index) {
                    text.push_str(delta);
                }
            }
            Event::ToolArguments { index, delta } => {
                if let Some(Open::Tool { arguments, .. }) = self.find(*index) {
                    arguments.push_str(delta);
                }
            }
            Event::ReasoningEnd { index, signature, redacted, details } => {
                if let Some(Open::Reasoning { signature: s, redacted: r, details: d, .. }) = self.find(*index)
                {
                    signature.clone_into(s);
                    redacted.clone_into(r);
                    details.clone_into(d);
                }
            }
            Event::BlockEnd { .. } => {}
            Event::Usage(tokens) => self.tokens = Some(*tokens),
            Event::Finished { reason, raw } => self.finish = Some((*reason, raw.clone())),
        }
    }

    /// Returns the answer so far. It is complete if `Finished` was among the events.
    pub fn finish(self) -> AccumulatedAnswer {
        let is_whole = self.finish.as_ref().is_some_and(|(reason, _)| !reason.is_cut());
        let block = |(_, open): (u32, Open)| match open {
            Open::Text(text) => Block::Text(text),
            Open::Reasoning { text, signature, redacted, details } => {
                Block::Reasoning { text, signature, redacted, details }
            }
            Open::Tool { id, name, arguments } => tool_call(id, name, arguments, is_whole),
        };
        let blocks = self.blocks.into_iter().map(block).collect();
        AccumulatedAnswer { model: self.model, blocks, tokens: self.tokens, finish: self.finish }
    }

    fn find(&mut self, index: u32) -> Option<&mut Open> {
        // The growing block is nearly always one of the last.
        self.blocks.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, block)| block)
    }
}

fn tool_call(id: String, name: String, raw: String, is_whole: bool) -> Block {
    if !is_whole {
        return Block::InvalidToolCall { id, name, raw, reason: Invalid::Incomplete };
    }
    if name.is_empty() {
        return Block::InvalidToolCall { id, name, raw, reason: Invalid::Nameless };
    }
    match arguments(&raw) {
        Some(input) => Block::ToolCall { id, name, input },
        None => Block::InvalidToolCall { id, name, raw, reason: Invalid::NotAnObject },
    }
}

/// The arguments in `raw` if they are a JSON object, which may be encoded twice. An empty text counts as an empty object: a tool without
/// parameters may be called that way.
pub fn arguments(raw: &str) -> Option<Value> {
    if raw.trim().is_empty() {
        return Some(Value::Object(serde_json::Map::new()));
    }
    let value = json::parse(raw)?;
    let inner = value.as_str().and_then(json::parse);
    inner.or(Some(value)).filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn call(name: &str, raw: &str, finish: Option<Finish>) -> Block {
        let mut accumulator = Accumulator::default();
        accumulator.push(&Event::ToolStart { index: 3, id: "c1".to_owned(), name: name.to_owned() });
        accumulator.push(&Event::ToolArguments { index: 3, delta: raw.to_owned() });
        accumulator.push(&Event::ToolArguments { index: 9, delta: "lost".to_owned() });
        accumulator.push(&Event::BlockEnd { index: 3, details: None });
        if let Some(reason) = finish {
            accumulator.push(&Event::Finished { reason, raw: String::new() });
        }
        accumulator.finish().blocks.remove(0)
    }

    #[test]
    fn only_whole_calls_of_whole_answers_may_run() {
        let invalid = |raw: &str, reason| Block::InvalidToolCall {
            id: "c1".to_owned(),
            name: "bash".to_owned(),
            raw: raw.to_owned(),
            reason,
        };
        let valid = |input| Block::ToolCall { id: "c1".to_owned(), name: "bash".to_owned(), input };
        for (raw, finish, want) in [
            ("{\"a\":1}", Some(Finish::ToolCalls), valid(json!({"a": 1}))),
            ("{\"a\":1}", Some(Finish::Stop), valid(json!({"a": 1}))),
            ("{\"a\":1}", Some(Finish::Other), valid(json!({"a": 1}))),
            ("", Some(Finish::ToolCalls), valid(json!({}))),
            ("\"{\\\"a\\\":1}\"", Some(Finish::ToolCalls), valid(json!({"a": 1}))),
            ("\"[1]\"", Some(Finish::ToolCalls), invalid("\"[1]\"", Invalid::NotAnObject)),
            ("{\"a\":1}", None, invalid("{\"a\":1}", Invalid::Incomplete)),
            ("{\"a\":1}", Some(Finish::Length), invalid("{\"a\":1}", Invalid::Incomplete)),
            ("{\"a\":1}", Some(Finish::ContentFilter), invalid("{\"a\":1}", Invalid::Incomplete)),
            ("{\"a\":", Some(Finish::ToolCalls), invalid("{\"a\":", Invalid::NotAnObject)),
            ("[1]", Some(Finish::ToolCalls), invalid("[1]", Invalid::NotAnObject)),
            ("\"{}\"", Some(Finish::ToolCalls), valid(json!({}))),
            ("7", Some(Finish::ToolCalls), invalid("7", Invalid::NotAnObject)),
            ("{\"a\":1e999}", Some(Finish::ToolCalls), invalid("{\"a\":1e999}", Invalid::NotAnObject)),
            ("{\"a\":\"\\ud83d\"}", Some(Finish::ToolCalls), valid(json!({"a": "\u{fffd}"}))),
        ] {
            assert_eq!(call("bash", raw, finish), want);
        }
        let nameless = call("", "{}", Some(Finish::ToolCalls));
        assert!(matches!(nameless, Block::InvalidToolCall { reason: Invalid::Nameless, .. }), "{nameless:?}");
    }
}
