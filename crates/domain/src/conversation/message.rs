//! Messages in OpenCode's JSON format: stored, sent to clients, and translated for models.

use crate::{
    ids::{MessageId, SessionId, Timestamp},
    money::{Tokens, UsdPicos},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One entry of a conversation.
///
/// ```json
/// {"role":"user","id":"msg_…","sessionID":"ses_…","time":{"created":1795292980519},"agent":"build",
///  "model":{"providerID":"anthropic","modelID":"claude-sonnet-5"}}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "a conversation has few of them in memory")]
pub enum Message {
    User(User),
    /// One step of the agent: one model call and its tool calls.
    Assistant(Box<Assistant>),
}

impl Message {
    pub fn id(&self) -> &MessageId {
        match self {
            Self::User(user) => &user.id,
            Self::Assistant(assistant) => &assistant.id,
        }
    }

    /// `"user"` or `"assistant"`.
    pub fn role(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Assistant(_) => "assistant",
        }
    }
}

/// A model, by its provider's name and its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRef {
    /// Name of the provider in the configuration.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// The provider's name of the model.
    #[serde(rename = "modelID")]
    pub model_id: String,
}

/// A model and its reasoning effort.
///
/// ```json
/// {"providerID":"anthropic","modelID":"claude-sonnet-5","variant":"high"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChoice {
    #[serde(flatten)]
    pub model: ModelRef,
    /// One of [`VARIANTS`]; absent: the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl From<ModelRef> for ModelChoice {
    fn from(model: ModelRef) -> Self {
        Self { model, variant: None }
    }
}

/// The reasoning efforts; `default` leaves the effort to the provider. A model that lacks one gets the nearest that it has.
pub const VARIANTS: [&str; 8] = ["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: MessageId,
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    pub time: MessageTime,
    pub agent: String,
    pub model: ModelChoice,
    /// An additional system instruction for this prompt only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Tools that are switched off (or on again) for this prompt, by name or pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeMap<String, bool>>,
    /// The required format of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The changes of its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// The format of an answer.
///
/// ```json
/// {"type":"json_schema","schema":{"type":"object"},"retryCount":2}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Format {
    Text,
    /// An object of this schema.
    JsonSchema {
        /// The schema; of type object.
        schema: Value,
        /// Number of retries for an answer that does not match the schema.
        #[serde(default, rename = "retryCount", skip_serializing_if = "Option::is_none")]
        retry_count: Option<u32>,
    },
}

/// The changes of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    pub diffs: Vec<FileDiff>,
}

/// The changes of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileDiff {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    pub additions: u64,
    pub deletions: u64,
    /// `added`, `deleted` or `modified`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// The answer of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    pub id: MessageId,
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// When it began, and when it was over.
    pub time: MessageTime,
    /// The prompt that it answers: the newest one when the step began.
    #[serde(rename = "parentID")]
    pub parent_id: MessageId,
    /// The model that was called.
    #[serde(flatten)]
    pub model: ModelChoice,
    /// The agent, under OpenCode's older name.
    pub mode: String,
    pub agent: String,
    /// The directories of its tools.
    pub path: Path,
    /// Exact cost; dollars in JSON.
    #[serde(with = "dollars")]
    pub cost: UsdPicos,
    pub tokens: Tokens,
    /// Why the model stopped; absent while the step runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// Whether it is a summary that replaces the conversation before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl Assistant {
    /// Whether it is a summary.
    pub fn is_summary(&self) -> bool {
        self.summary == Some(true)
    }
}

/// Milliseconds since 1970 of the beginning and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageTime {
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

/// Directories as the agent sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    pub cwd: String,
    pub root: String,
}

/// Why a step or a turn failed, under OpenCode's names.
///
/// ```json
/// {"name":"APIError","data":{"message":"overloaded","statusCode":529,"isRetryable":true}}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// `ProviderAuthError`, `APIError`, `MessageAbortedError`, `MessageOutputLengthError`, `ContextOverflowError`,
    /// `ContentFilterError`, `StructuredOutputError`, `UnknownError`.
    pub name: String,
    /// Details, in a box: errors are rare, and values that may be errors stay small.
    pub data: Box<ErrorData>,
}

/// A sentence for people, and details for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorData {
    /// One sentence.
    pub message: String,
    /// HTTP status of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// Whether another attempt may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_retryable: Option<bool>,
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Number of retries for a structured answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Our stable code, such as `needs_human`, of an error that OpenCode has no name for.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Error {
    /// An error that has only a name and a sentence.
    pub fn new(name: &str, message: impl Into<String>) -> Self {
        let data = ErrorData {
            message: message.into(),
            status_code: None,
            is_retryable: None,
            provider_id: None,
            retries: None,
            code: None,
        };
        Self { name: name.into(), data: Box::new(data) }
    }

    /// An error that OpenCode has no name for: an `UnknownError` with our stable code.
    pub fn coded(code: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(UNKNOWN, message);
        error.data.code = Some(code.to_owned());
        error
    }

    /// After this many retries, the model still returned no object that matches the schema.
    pub fn structured(message: impl Into<String>, retries: u32) -> Self {
        let mut error = Self::new("StructuredOutputError", message);
        error.data.retries = Some(retries);
        error
    }

    /// The conversation does not fit into the model's context.
    pub fn overflow(message: impl Into<String>) -> Self {
        Self::new(OVERFLOW, message)
    }

    /// Whether it is [`Error::overflow`].
    pub fn is_overflow(&self) -> bool {
        self.name == OVERFLOW
    }

    /// A person or an operator stopped the turn.
    pub fn aborted() -> Self {
        Self::new(ABORTED, "The turn was aborted")
    }

    /// Whether it is [`Error::aborted`].
    pub fn is_abort(&self) -> bool {
        self.name == ABORTED
    }
}

const ABORTED: &str = "MessageAbortedError";
const UNKNOWN: &str = "UnknownError";
/// The name of the error for a conversation that is too long.
pub const OVERFLOW: &str = "ContextOverflowError";

/// Money as a JSON number of dollars.
pub(crate) mod dollars {
    use crate::money::UsdPicos;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's shape")]
    pub(crate) fn serialize<S: Serializer>(amount: &UsdPicos, serializer: S) -> Result<S::Ok, S::Error> {
        // A whole zero, as OpenCode writes it.
        if amount.0 == 0 { serializer.serialize_u64(0) } else { serializer.serialize_f64(amount.dollars()) }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UsdPicos, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        UsdPicos::from_dollars(dollars).ok_or_else(|| D::Error::custom("not an amount of dollars"))
    }
}

#[cfg(test)]
mod tests;
