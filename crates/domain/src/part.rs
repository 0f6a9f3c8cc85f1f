//! Parts in OpenCode's JSON shape: the pieces of a message. What only prompts are made of is in `attached`.

pub mod attached;

use crate::{
    ids::{MessageId, PartId, SessionId, Timestamp},
    message::{Error, dollars},
    money::{Tokens, UsdPicos},
};
use attached::{Compaction, File, Mention, Subtask};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// One piece of a message.
///
/// ```json
/// {"id":"prt_…","sessionID":"ses_…","messageID":"msg_…","type":"text","text":"Hello","time":{"start":1,"end":2}}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its id; ascending inside a message.
    pub id: PartId,
    /// Whose conversation.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Which message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// What it is.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Body {
    /// What was said.
    Text(Text),
    /// What the model thought.
    Reasoning(Reasoning),
    /// A tool call with its state.
    Tool(Tool),
    /// A file, given with a prompt or by a tool.
    File(File),
    /// An agent is named, which is to be given a part of the work.
    Agent(Mention),
    /// A task that an agent is to do before anything else.
    Subtask(Subtask),
    /// What came before is to be summed up.
    Compaction(Compaction),
    /// Files were changed.
    Patch(Patch),
    /// The files as they are now.
    Snapshot(Snapshot),
    /// A model call begins.
    StepStart(StepStart),
    /// A model call and its tools are over.
    StepFinish(StepFinish),
    /// A model call failed and is tried again.
    Retry(Retry),
}

impl Body {
    /// The value of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Tool(_) => "tool",
            Self::File(_) => "file",
            Self::Agent(_) => "agent",
            Self::Subtask(_) => "subtask",
            Self::Compaction(_) => "compaction",
            Self::Patch(_) => "patch",
            Self::Snapshot(_) => "snapshot",
            Self::StepStart(_) => "step-start",
            Self::StepFinish(_) => "step-finish",
            Self::Retry(_) => "retry",
        }
    }
}

/// Start and, when over, end; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

/// Said by a person or the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Text {
    /// The words.
    pub text: String,
    /// Whether we wrote it, not a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Whether it is not shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<bool>,
    /// When it was streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Facts for clients, and marks of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl Text {
    /// Words of ours, not of a person.
    pub fn synthetic(text: impl Into<String>) -> Self {
        Self { text: text.into(), synthetic: Some(true), ..Self::default() }
    }

    /// Puts a mark of ours on it.
    #[must_use]
    pub fn marked(mut self, mark: &str, value: impl Into<Value>) -> Self {
        self.metadata.get_or_insert_default().insert(mark.to_owned(), value.into());
        self
    }

    /// What a mark says.
    pub fn mark(&self, mark: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(mark)
    }
}

/// Mark on a text of a message to which nobody wants an answer.
pub const NO_REPLY: &str = "no_reply";

/// When a call ran that has an answer; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Since when the model does not get its output any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<Timestamp>,
}

impl Ran {
    /// From then until then.
    pub fn new(start: Timestamp, end: Timestamp) -> Self {
        Self { start, end, compacted: None }
    }
}

/// Thought by the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The words; empty when redacted.
    pub text: String,
    /// When it was streamed.
    pub time: Span,
    /// The provider's signature or opaque data, sent back only to the same provider and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The provider's id of the call.
    #[serde(rename = "callID")]
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// How far it is.
    pub state: ToolState,
}

/// How far a tool call is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ToolState {
    /// Asked for; not begun.
    Pending {
        /// The arguments; empty until they are complete.
        input: Value,
        /// The arguments as the model wrote them.
        raw: String,
    },
    /// Begun: its intent is stored, its effect may have happened.
    Running {
        /// The arguments.
        input: Value,
        /// What it does, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Live facts, such as the newest output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        /// When it began.
        time: Span,
    },
    /// Over, with an answer for the model.
    Completed {
        /// The arguments.
        input: Value,
        /// The answer. Shared with the requests that it goes into: a long conversation has megabytes of them.
        output: Arc<String>,
        /// What it did, for people.
        title: String,
        /// Facts for clients: exit code, diff, counts.
        metadata: Map<String, Value>,
        /// When it ran.
        time: Ran,
        /// Files that it gave: parts of their own, which stand only here.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Part>,
    },
    /// Over, with an error for the model.
    Error {
        /// The arguments.
        input: Value,
        /// What is told to the model.
        error: String,
        /// Facts for clients.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        /// When it ran.
        time: Span,
    },
}

impl ToolState {
    /// The arguments.
    pub fn input(&self) -> &Value {
        match self {
            Self::Pending { input, .. }
            | Self::Running { input, .. }
            | Self::Completed { input, .. }
            | Self::Error { input, .. } => input,
        }
    }

    /// Whether there is an answer for the model.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Error { .. } => true,
            Self::Pending { .. } | Self::Running { .. } => false,
        }
    }
}

/// Files were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The tree before the change.
    pub hash: String,
    /// The files, by their absolute paths.
    pub files: Vec<String>,
}

/// The files as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The tree.
    pub snapshot: String,
}

/// A model call begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepStart {
    /// The files as they are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// A model call is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFinish {
    /// `stop`, `tool-calls`, `length`, `content-filter`, `unknown`.
    pub reason: String,
    /// The files as they are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Exact cost; dollars in JSON.
    #[serde(with = "dollars")]
    pub cost: UsdPicos,
    /// Tokens of this step.
    pub tokens: Tokens,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Which one, from 1.
    pub attempt: u32,
    /// Why it failed.
    pub error: Error,
    /// When.
    pub time: RetryTime,
}

/// When an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryTime {
    /// Milliseconds since 1970.
    pub created: Timestamp,
}

#[cfg(test)]
mod tests;
