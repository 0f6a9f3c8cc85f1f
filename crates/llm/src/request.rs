//! What a model is asked, in no provider's words. Turning it into JSON is each protocol's `request` file.

use crate::config::Model;

/// One model call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The provider's name of the model.
    pub model: String,
    /// System prompt in pieces, the stable ones first (the first two are marked for the provider's cache).
    pub system: Vec<String>,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Longest answer, in tokens; 0, or more than the model's own limit, means that limit.
    pub output_tokens_max: u64,
    /// Sampling temperature; left out for models that refuse one.
    pub temperature: Option<f64>,
    /// Routes calls of one conversation to the same prompt cache: the session id. Empty = none.
    pub cache_key: String,
    /// How hard the model should think; `None` leaves the provider's default.
    pub reasoning: Option<Effort>,
}

impl Request {
    /// The longest answer that `model` may be asked for; tokens.
    pub(crate) fn output_tokens(&self, model: &Model) -> u64 {
        match self.output_tokens_max {
            0 => model.output_tokens,
            wanted => wanted.min(model.output_tokens),
        }
    }
}

/// How hard a reasoning model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Briefly.
    Low,
    /// As most callers want.
    Medium,
    /// Long.
    High,
}

impl Effort {
    /// The word that providers use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One entry of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What the user said.
    User(Vec<UserPart>),
    /// What the model answered.
    Assistant(Vec<AssistantPart>),
    /// What the tools gave that the previous answer called.
    ToolResults(Vec<ToolResult>),
}

/// A piece of a user's message.
#[derive(Debug, Clone, PartialEq)]
pub enum UserPart {
    /// Plain text.
    Text(String),
    /// A picture.
    Image {
        /// For example `image/png`.
        media_type: String,
        /// The bytes in standard base64.
        base64: String,
    },
}

/// A piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantPart {
    /// Plain text.
    Text(String),
    /// Reasoning. It is sent back only with what the provider needs to accept it.
    Reasoning {
        /// The text; may be empty.
        text: String,
        /// Anthropic's signature of the text.
        signature: Option<String>,
        /// Anthropic's encrypted reasoning, without text.
        redacted: Option<String>,
        /// OpenRouter's `reasoning_details`, an array.
        details: Option<serde_json::Value>,
    },
    /// A tool call.
    ToolCall {
        /// The provider's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments, an object.
        input: serde_json::Value,
    },
}

/// What one tool call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Id of the call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Its output.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON schema of its arguments, an object schema.
    pub schema: serde_json::Value,
}
