//! What prompts are made of besides text: files, mentions of agents, tasks, and the wish to sum up.

use crate::{ids::MessageId, message::ModelRef};
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
    /// A `data:` address with its bytes, or a `file:` address in the workspace.
    pub url: String,
    /// Where the prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Where a prompt names a file, and what it is taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Source {
    /// A file.
    File {
        /// The words of the prompt.
        text: Words,
        /// Its path.
        path: String,
    },
    /// A function, a type: a piece of a file.
    Symbol {
        /// The words of the prompt.
        text: Words,
        /// Path of its file.
        path: String,
        /// Where in the file, as language servers say it.
        range: Value,
        /// Its name.
        name: String,
        /// What it is, as language servers number it.
        kind: u64,
    },
    /// Something that a server of tools offers.
    Resource {
        /// The words of the prompt.
        text: Words,
        /// The server.
        #[serde(rename = "clientName")]
        client_name: String,
        /// Its address.
        uri: String,
    },
}

/// Words of a prompt and their place in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// The words.
    pub value: String,
    /// Where they begin; characters as the client counts them.
    pub start: i64,
    /// Where they end.
    pub end: i64,
}

/// An agent is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mention {
    /// The agent.
    pub name: String,
    /// Where the prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Words>,
}

impl Mention {
    /// What a model is told of it.
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
    /// In a few words.
    pub description: String,
    /// Who does it.
    pub agent: String,
    /// Which model; absent: the prompt's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The command that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What came before is to be summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Whether nobody asked for it: the conversation was about to become too long.
    pub auto: bool,
    /// Whether it was too long already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<bool>,
    /// The first message that is kept as it is beside the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_start_id: Option<MessageId>,
}
