//! A model request, independent of the provider. Each protocol's `request` file converts it to JSON.

use crate::model::{Effort, Model};
use domain::{policy::tool, text};
use std::{borrow::Cow, sync::Arc};

/// Bytes of the texts of a small request. It takes less time to serialize than to hand over to another thread.
const SMALL_REQUEST_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The provider's id of the model.
    pub model: String,
    /// System prompt in pieces, the stable ones first. The first two are marked for the provider's cache.
    pub system: Vec<String>,
    /// The conversation, oldest first. A call without a result gets a placeholder result, and a result without a call
    /// is left out: providers refuse both.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<tool::Spec>,
    /// Whether the model must call a tool.
    pub tool_choice: ToolChoice,
    /// The answer's length limit in tokens. 0 or a value above the model's own limit means that limit.
    pub output_tokens_max: u64,
    /// Sampling temperature; `None` uses the recommended one. It is left out for models that refuse a temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling; handled like the temperature.
    pub top_p: Option<f64>,
    /// The session id. It routes the calls of one session to the same prompt cache. Empty: no routing.
    pub cache_key: String,
    /// How hard the model should think; `None` keeps the provider's default. The nearest supported effort replaces an
    /// unsupported one.
    pub variant: Option<Effort>,
}

impl Request {
    /// The length limit to request from `model`; tokens.
    pub(crate) fn output_tokens(&self, model: &Model) -> u64 {
        match self.output_tokens_max {
            0 => model.output_tokens,
            wanted => wanted.min(model.output_tokens),
        }
    }

    /// The system prompt as one text; empty if there is none.
    pub(crate) fn system_text(&self) -> String {
        let texts: Vec<&str> =
            self.system.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        texts.join("\n\n")
    }

    /// Whether it has pictures or documents.
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::User(parts) => parts.iter().any(|part| matches!(part, UserPart::Media(_))),
            Message::ToolResults(results) => results.iter().any(|result| !result.media.is_empty()),
            Message::Assistant(_) => false,
        })
    }

    /// Whether its texts are short, and it has no pictures and documents.
    pub(crate) fn is_small(&self) -> bool {
        self.text_bytes_within(SMALL_REQUEST_BYTES_MAX).is_some()
    }

    /// The bytes of the texts of its system prompt and its messages; `None` if they are more than `bytes_max`, or if it has pictures or documents. The
    /// rest of a longer conversation is not counted.
    pub fn text_bytes_within(&self, bytes_max: usize) -> Option<usize> {
        let mut bytes: usize = self.system.iter().map(String::len).sum();
        for message in &self.messages {
            if bytes > bytes_max {
                return None;
            }
            bytes = bytes.saturating_add(message.text_bytes()?);
        }
        (bytes <= bytes_max).then_some(bytes)
    }

    /// Whether the conversation contains tool calls but the request offers no tools. Some servers refuse that.
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
    #[default]
    Auto,
    /// The model must call a tool.
    Required,
    /// The model must not call a tool.
    None,
    /// The model must call the tool of this name.
    Named(String),
}

impl ToolChoice {
    /// Whether the model must call a tool.
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
    User(Vec<UserPart>),
    /// An answer of the model.
    Assistant(Vec<AssistantPart>),
    /// The results of the tool calls in the previous answer.
    ToolResults(Vec<ToolResult>),
}

impl Message {
    /// The bytes of its texts; `None` if it contains pictures or documents.
    fn text_bytes(&self) -> Option<usize> {
        match self {
            Self::User(parts) => parts
                .iter()
                .map(|part| match part {
                    UserPart::Text(text) => Some(text.len()),
                    UserPart::Media(_) => None,
                })
                .sum(),
            Self::Assistant(parts) => {
                let bytes = |part: &AssistantPart| match part {
                    AssistantPart::Text { text, details } => {
                        text.len() + details.as_ref().map_or(0, text::json_bytes)
                    }
                    AssistantPart::Reasoning { text, signature, redacted, details } => {
                        let opaque =
                            [signature, redacted].into_iter().flatten().map(String::len).sum::<usize>();
                        text.len() + opaque + details.as_ref().map_or(0, text::json_bytes)
                    }
                    AssistantPart::ToolCall { id, name, input } => {
                        id.len() + name.len() + text::json_bytes(input)
                    }
                };
                Some(parts.iter().map(bytes).sum())
            }
            Self::ToolResults(results) => results
                .iter()
                .map(|result| {
                    let is_text = result.media.is_empty();
                    is_text.then(|| result.call_id.len() + result.name.len() + result.text.len())
                })
                .sum(),
        }
    }
}

/// A piece of a user's message.
#[derive(Debug, Clone, PartialEq)]
pub enum UserPart {
    Text(String),
    /// An image or a document. A model that does not accept it gets a sentence instead.
    Media(Media),
}

/// An image or a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// For example `image/png` or `application/pdf`.
    pub mime: String,
    /// File name, for people and models; may be empty.
    pub name: String,
    pub source: Source,
}

/// The location of a [`Media`]'s bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Inline, in standard base64.
    Base64(String),
    /// At a URL that the provider fetches.
    Url(String),
}

/// How a provider treats a [`Media`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    Pdf,
}

impl Media {
    /// The kind, if `model` accepts it; otherwise the text that the model gets instead.
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

    /// The URL, or a `data:` URL with the bytes.
    pub(crate) fn url(&self) -> String {
        match &self.source {
            Source::Base64(data) => format!("data:{};base64,{data}", self.mime),
            Source::Url(url) => url.clone(),
        }
    }

    /// The file name; some providers require one.
    pub(crate) fn file_name(&self) -> &str {
        if self.name.is_empty() { "document.pdf" } else { &self.name }
    }
}

/// A piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantPart {
    Text {
        text: String,
        /// What [`crate::event::Event::BlockEnd`] gave for it; sent back only to the provider and model that made it.
        details: Option<serde_json::Value>,
    },
    /// Reasoning. It is sent back only to the provider and model that made it. The fields are those of
    /// [`crate::event::Event::ReasoningEnd`].
    Reasoning {
        /// The text; may be empty.
        text: String,
        /// Anthropic's signature of the text.
        signature: Option<String>,
        /// Anthropic's encrypted reasoning, without text.
        redacted: Option<String>,
        /// An array of what other providers need back.
        details: Option<serde_json::Value>,
    },
    ToolCall {
        /// The provider's id.
        id: String,
        name: String,
        /// The arguments, an object.
        input: serde_json::Value,
    },
}

impl AssistantPart {
    /// A text without details.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), details: None }
    }
}

/// The result of one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolResult {
    pub call_id: String,
    pub name: String,
    /// The output, shared with the conversation that it belongs to.
    pub text: Arc<String>,
    /// Images and documents in the output.
    pub media: Vec<Media>,
    pub is_error: bool,
}

impl ToolResult {
    /// The text, with a sentence for each image or document that `model` does not accept, and the media that it does
    /// accept.
    pub(crate) fn text_and_media(&self, model: &Model) -> (Cow<'_, str>, Vec<&Media>) {
        let mut text = Cow::Borrowed(self.text.as_str());
        let mut attachments = Vec::new();
        for media in &self.media {
            match media.kind(model) {
                Ok(_) => attachments.push(media),
                Err(sentence) if text.is_empty() => text = Cow::Owned(sentence),
                Err(sentence) => text.to_mut().push_str(&format!("\n{sentence}")),
            }
        }
        (text, attachments)
    }
}

#[cfg(test)]
pub(crate) mod tests;
