//! The parts of prompts other than text: files, mentions of agents, tasks, and requests to summarize.

use crate::{conversation::message::ModelRef, ids::MessageId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A file.
///
/// ```json
/// {"type":"file","mime":"text/plain","filename":"a.txt","url":"file:///workspace/a.txt"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its media type; `application/x-directory` for a directory.
    pub mime: String,
    /// Its name, for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// A `data:` URL with its bytes, or a `file:` URL in the workspace.
    pub url: String,
    /// Where the prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Where a prompt names a file, and the source of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Source {
    File {
        /// The text of the prompt that names it.
        text: Words,
        path: String,
    },
    /// A symbol, such as a function or a type.
    Symbol {
        /// The text of the prompt that names it.
        text: Words,
        path: String,
        /// Its range in the file, as language servers give it.
        range: Value,
        name: String,
        /// Its kind, by the numbers of language servers.
        kind: u64,
    },
    /// A resource of a tool server.
    Resource {
        /// The text of the prompt that names it.
        text: Words,
        #[serde(rename = "clientName")]
        client_name: String,
        uri: String,
    },
}

/// A piece of a prompt's text and its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    pub value: String,
    /// Its start; characters as the client counts them.
    pub start: i64,
    pub end: i64,
}

/// A mention of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mention {
    pub name: String,
    /// Where the prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Words>,
}

impl Mention {
    /// The sentence that tells a model about it.
    pub fn told(&self) -> String {
        format!(
            " Use the above message and context to generate a prompt and call the task tool with subagent: {}",
            self.name
        )
    }
}

/// A task for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtask {
    /// The whole task.
    pub prompt: String,
    pub description: String,
    /// The agent that does it.
    pub agent: String,
    /// Its model; absent: the model of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The command that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A request to summarize the conversation so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Whether the worker made it, because the conversation was about to become too long.
    pub auto: bool,
    /// Whether it was too long already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<bool>,
    /// The first message that stays unchanged after the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_start_id: Option<MessageId>,
}
