//! What a model is asked, in no provider's words. Turning it into JSON is each protocol's `request` file.

use crate::model::{Effort, Model};
use domain::tool;
use std::{borrow::Cow, sync::Arc};

/// One model call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The provider's name of the model.
    pub model: String,
    /// System prompt in pieces, the stable ones first (the first two are marked for the provider's cache).
    pub system: Vec<String>,
    /// The conversation, oldest first. Calls without a result are answered for the model, results without a call are
    /// left out: providers accept neither.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<tool::Spec>,
    /// Whether it must call one.
    pub tool_choice: ToolChoice,
    /// Longest answer, in tokens; 0, or more than the model's own limit, means that limit.
    pub output_tokens_max: u64,
    /// Sampling temperature; `None` means what suits the model. Left out for models that refuse one.
    pub temperature: Option<f64>,
    /// Nucleus sampling; treated as the temperature is.
    pub top_p: Option<f64>,
    /// Routes calls of one conversation to the same prompt cache: the session id. Empty = none.
    pub cache_key: String,
    /// How hard the model should think; `None` leaves the provider's default. What the model does not offer is
    /// replaced by what comes nearest.
    pub variant: Option<Effort>,
}

impl Request {
    /// The longest answer that `model` may be asked for; tokens.
    pub(crate) fn output_tokens(&self, model: &Model) -> u64 {
        match self.output_tokens_max {
            0 => model.output_tokens,
            wanted => wanted.min(model.output_tokens),
        }
    }

    /// The system prompt in one text; empty if there is none.
    pub(crate) fn system_text(&self) -> String {
        let texts: Vec<&str> =
            self.system.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        texts.join("\n\n")
    }

    /// Whether the conversation has tool calls although no tools are offered: some servers refuse that.
    pub(crate) fn lacks_tools(&self) -> bool {
        let is_call = |part: &AssistantPart| matches!(part, AssistantPart::ToolCall { .. });
        let has_call = |message: &Message| match message {
            Message::Assistant(parts) => parts.iter().any(is_call),
            Message::User(_) | Message::ToolResults(_) => false,
        };
        self.tools.is_empty() && self.messages.iter().any(has_call)
    }
}

/// Whether the model must call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// Some tool.
    Required,
    /// None at all.
    None,
    /// The tool of this name.
    Named(String),
}

impl ToolChoice {
    /// Whether the model has no choice.
    pub(crate) fn is_forced(&self) -> bool {
        match self {
            Self::Required | Self::Named(_) => true,
            Self::Auto | Self::None => false,
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
    /// A picture or a document. A model that does not understand it is told so in its place.
    Media(Media),
}

/// A picture or a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// For example `image/png` or `application/pdf`.
    pub mime: String,
    /// File name, for people and models; may be empty.
    pub name: String,
    /// What it holds.
    pub source: Source,
}

/// Where the bytes of a [`Media`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Here, in standard base64.
    Base64(String),
    /// At an address that the provider fetches.
    Url(String),
}

/// What a [`Media`] is to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    Pdf,
}

impl Media {
    /// What it is, if `model` understands it; otherwise what is said to the model in its place.
    pub(crate) fn kind(&self, model: &Model) -> Result<MediaKind, String> {
        let kind = self.mime.split('/').next().filter(|kind| *kind != "application").unwrap_or(&self.mime);
        let name = if self.name.is_empty() { kind.to_owned() } else { format!("{:?}", self.name) };
        if matches!(&self.source, Source::Base64(data) if data.is_empty()) {
            return Err(format!("ERROR: Cannot read {name} (it is empty or damaged). Inform the user."));
        }
        match self.mime.as_str() {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" if model.images => Ok(MediaKind::Image),
            "application/pdf" if model.pdf => Ok(MediaKind::Pdf),
            mime => Err(format!(
                "ERROR: Cannot read {name} (this model does not support {mime} input). Inform the user."
            )),
        }
    }

    /// The address, or a `data:` address with the bytes.
    pub(crate) fn url(&self) -> String {
        match &self.source {
            Source::Base64(data) => format!("data:{};base64,{data}", self.mime),
            Source::Url(url) => url.clone(),
        }
    }

    /// The file name; some providers insist on one.
    pub(crate) fn file_name(&self) -> &str {
        if self.name.is_empty() { "document.pdf" } else { &self.name }
    }
}

/// A piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantPart {
    /// Plain text.
    Text(String),
    /// Reasoning, to be sent back to the provider and model that made it, and to no other: what it needs to be
    /// accepted is as [`crate::event::Event::ReasoningEnd`] gave it.
    Reasoning {
        /// The text; may be empty.
        text: String,
        /// Anthropic's signature of the text.
        signature: Option<String>,
        /// Anthropic's encrypted reasoning, without text.
        redacted: Option<String>,
        /// An array of what other providers want back.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolResult {
    /// Id of the call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Its output; shared with the conversation that it is of.
    pub text: Arc<String>,
    /// Pictures and documents that it gave.
    pub media: Vec<Media>,
    /// Whether it failed.
    pub is_error: bool,
}

impl ToolResult {
    /// Its text with a sentence for each picture or document that `model` does not understand, and those that it does.
    pub(crate) fn told(&self, model: &Model) -> (Cow<'_, str>, Vec<&Media>) {
        let mut text = Cow::Borrowed(self.text.as_str());
        let mut shown = Vec::new();
        for media in &self.media {
            match media.kind(model) {
                Ok(_) => shown.push(media),
                Err(said) if text.is_empty() => text = Cow::Owned(said),
                Err(said) => text.to_mut().push_str(&format!("\n{said}")),
            }
        }
        (text, shown)
    }
}

#[cfg(test)]
pub(crate) mod tests;
