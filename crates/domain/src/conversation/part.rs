//! Parts in OpenCode's JSON format: the pieces of a message. `attached` holds the parts that only prompts have.

pub mod attached;

use crate::{
    conversation::message::{Error, dollars},
    ids::{MessageId, PartId, SessionId, Timestamp},
    money::{Tokens, UsdPicos},
    text,
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
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    #[serde(flatten)]
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Body {
    Text(Text),
    Reasoning(Reasoning),
    /// A tool call with its state.
    Tool(Tool),
    /// A file of a prompt, or of a tool.
    File(File),
    /// A mention of an agent that should do part of the work.
    Agent(Mention),
    /// A task that an agent must do first.
    Subtask(Subtask),
    /// A request to summarize the conversation so far.
    Compaction(Compaction),
    Patch(Patch),
    /// A snapshot of the files.
    Snapshot(Snapshot),
    /// The start of a model call.
    StepStart(StepStart),
    /// The end of a model call and its tools.
    StepFinish(StepFinish),
    /// A failed model call that will be retried.
    Retry(Retry),
}

impl Body {
    /// The text of a text or a reasoning.
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Text(text) => Some(&mut text.text),
            Self::Reasoning(thought) => Some(&mut thought.text),
            Self::File(_)
            | Self::Tool(_)
            | Self::StepStart(_)
            | Self::StepFinish(_)
            | Self::Snapshot(_)
            | Self::Patch(_)
            | Self::Agent(_)
            | Self::Subtask(_)
            | Self::Retry(_)
            | Self::Compaction(_) => None,
        }
    }

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

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&Text> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Whether it is an attempt that failed with the error code `code`.
    pub fn is_failed_attempt(&self, code: &str) -> bool {
        matches!(self, Self::Retry(retry) if retry.error.data.code.as_deref() == Some(code))
    }

    /// The tool call, if it is one.
    pub fn as_tool(&self) -> Option<&Tool> {
        if let Self::Tool(tool) = self { Some(tool) } else { None }
    }

    /// The file, if it is one.
    pub fn as_file(&self) -> Option<&File> {
        if let Self::File(file) = self { Some(file) } else { None }
    }

    /// The request for a summary, if it is one.
    pub fn as_compaction(&self) -> Option<&Compaction> {
        if let Self::Compaction(compaction) = self { Some(compaction) } else { None }
    }

    /// Bytes of its texts and files: about the memory that it takes.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.text.len(),
            Self::Reasoning(thought) => thought.text.len(),
            Self::File(file) => file.url.len(),
            Self::Tool(tool) => tool.state.content_bytes(),
            Self::Patch(patch) => patch.files.iter().map(String::len).sum(),
            Self::Subtask(_)
            | Self::Agent(_)
            | Self::Compaction(_)
            | Self::Snapshot(_)
            | Self::StepStart(_)
            | Self::StepFinish(_)
            | Self::Retry(_) => 0,
        }
    }

    /// The finished step, if it is one.
    pub fn as_step_finish(&self) -> Option<&StepFinish> {
        if let Self::StepFinish(finish) = self { Some(finish) } else { None }
    }
}

/// Start and, when over, end; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub start: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

/// Text of a person or the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Text {
    pub text: String,
    /// Whether Flotilla wrote it, and not a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Whether it is hidden from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Metadata for clients, and our own marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl Text {
    /// A text that Flotilla wrote.
    pub fn synthetic(text: impl Into<String>) -> Self {
        Self { text: text.into(), synthetic: Some(true), ..Self::default() }
    }

    /// A text that Flotilla wrote for people only. Clients of OpenCode show it, because it is not synthetic.
    pub fn note(text: impl Into<String>) -> Self {
        Self { text: text.into(), ignored: Some(true), ..Self::default() }
    }

    /// Adds a mark of ours.
    #[must_use]
    pub fn marked(mut self, mark: &str, value: impl Into<Value>) -> Self {
        self.metadata.get_or_insert_default().insert(mark.to_owned(), value.into());
        self
    }

    pub fn mark(&self, mark: &str) -> Option<&Value> {
        self.metadata.as_ref()?.get(mark)
    }
}

/// The mark on a text of a message that needs no answer.
pub const NO_REPLY: &str = "no_reply";

/// When a finished call ran; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub start: Timestamp,
    pub end: Timestamp,
    /// When the worker stopped sending its output to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<Timestamp>,
}

impl Ran {
    pub fn new(start: Timestamp, end: Timestamp) -> Self {
        Self { start, end, compacted: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The words; empty when redacted.
    pub text: String,
    pub time: Span,
    /// The provider's signature or opaque data, sent back only to the same provider and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The provider's id of the call.
    #[serde(rename = "callID")]
    pub call_id: String,
    pub tool: String,
    pub state: ToolState,
}

/// The state of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ToolState {
    /// The model asked for it; it has not begun.
    Pending {
        /// The arguments; empty until they are complete.
        input: Value,
        /// The arguments as the model wrote them.
        raw: String,
    },
    /// It has begun. Its intent is stored, and its effect may already have happened.
    Running {
        input: Value,
        /// What it does, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Live metadata, such as the newest output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        time: Span,
    },
    Completed {
        input: Value,
        /// The answer for the model. Shared with the model requests that contain it: a long conversation has megabytes of answers.
        output: Arc<String>,
        /// What it did, for people.
        title: String,
        /// Metadata for clients: exit code, diff, counts.
        metadata: Map<String, Value>,
        time: Ran,
        /// Files that the tool returned. These parts exist only here.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Part>,
    },
    Error {
        input: Value,
        /// The error for the model.
        error: String,
        /// Metadata for clients.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        time: Span,
    },
}

impl ToolState {
    pub fn input(&self) -> &Value {
        match self {
            Self::Pending { input, .. }
            | Self::Running { input, .. }
            | Self::Completed { input, .. }
            | Self::Error { input, .. } => input,
        }
    }

    /// Bytes of its arguments, its output, its metadata and its files.
    fn content_bytes(&self) -> usize {
        let of_state = match self {
            Self::Pending { raw, .. } => raw.len(),
            Self::Running { metadata, .. } => text::json_bytes(metadata),
            Self::Completed { output, metadata, attachments, .. } => {
                let files = attachments.iter().map(|part| part.body.content_bytes());
                output.len() + text::json_bytes(metadata) + files.sum::<usize>()
            }
            Self::Error { error, metadata, .. } => error.len() + text::json_bytes(metadata),
        };
        text::json_bytes(self.input()) + of_state
    }

    /// Whether the call is over.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Error { .. } => true,
            Self::Pending { .. } | Self::Running { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The tree before the change.
    pub hash: String,
    /// The files, by their absolute paths.
    pub files: Vec<String>,
}

/// A snapshot of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub snapshot: String,
}

/// The start of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepStart {
    /// The tree of the files at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// The end of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFinish {
    /// `stop`, `tool-calls`, `length`, `content-filter`, `unknown`.
    pub reason: String,
    /// The tree of the files at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Exact cost; dollars in JSON.
    #[serde(with = "dollars")]
    pub cost: UsdPicos,
    pub tokens: Tokens,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    pub error: Error,
    pub time: RetryTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryTime {
    /// Milliseconds since 1970.
    pub created: Timestamp,
}

#[cfg(test)]
mod tests;
