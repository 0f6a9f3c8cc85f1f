//! Model call failures, by what the caller can do about them.

use domain::limits::{MODEL_ERROR_BODY_BYTES_MAX, MODEL_ERROR_MESSAGE_BYTES_MAX};

/// Bytes of an answer that an error quotes. The rest is cut.
pub(crate) const QUOTE_BYTES_MAX: usize = 200;

/// Words (lower case) in errors about pictures and documents.
const MEDIA_WORDS: &[&str] = &[
    "image",
    "picture",
    "pdf",
    "document",
    "media",
    "base64",
    "mime",
    "pixel",
    "attachment",
    "vision",
    "multimodal",
    "modalit",
    "input_file",
];
/// Words (lower case) that tell a refusal from a failure of the server.
const REFUSAL_WORDS: &[&str] =
    &["not support", "unsupported", "invalid", "could not process", "unable to process", "mmproj"];

/// A failed model call. The text is one sentence with the provider's own message. It never contains a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    /// HTTP status, including one that the provider sent inside a stream.
    pub status: Option<u16>,
    /// Text for people; at most [`MODEL_ERROR_MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// The delay that the provider requests; milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The provider's id of the call.
    pub request_id: Option<String>,
    /// The provider's answer, at most [`MODEL_ERROR_BODY_BYTES_MAX`] bytes. It may quote the prompt, so it must not be
    /// logged.
    pub body: Option<String>,
    /// Overrides the verdict of `kind`, for failures where the provider or the context decides.
    retryable: Option<bool>,
}

/// The cause of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The key is missing, wrong or lacks the permission.
    Auth,
    /// The model or the address does not exist.
    NotFound,
    /// Too many requests: wait.
    RateLimited,
    /// The account has no credit or quota left: waiting does not help.
    Quota,
    /// The provider is overloaded: wait.
    Overloaded,
    Server,
    /// The conversation does not fit into the model's context: compact it.
    Overflow,
    /// The provider's filter refused the request.
    ContentFilter,
    /// The provider refused the request as malformed.
    Invalid,
    /// The answer exceeds our bounds.
    TooLarge,
    Transport,
    /// The answer stopped before it was complete.
    Truncated,
    /// The provider was silent for too long.
    Timeout,
    /// The answer violates the protocol.
    Protocol,
}

impl ErrorKind {
    /// The kind as one word, for error codes and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::NotFound => "not_found",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::Overflow => "overflow",
            Self::ContentFilter => "content_filter",
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
            Self::Transport => "transport",
            Self::Truncated => "truncated",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }

    fn is_retryable(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Overloaded
            | Self::Server
            | Self::Transport
            | Self::Truncated
            | Self::Timeout => true,
            Self::Auth
            | Self::NotFound
            | Self::Quota
            | Self::Overflow
            | Self::ContentFilter
            | Self::Invalid
            | Self::TooLarge
            | Self::Protocol => false,
        }
    }
}

impl Error {
    /// Creates an error of `kind` with `message`, cut to its bound.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            status: None,
            message: bounded(message.as_ref(), MODEL_ERROR_MESSAGE_BYTES_MAX),
            retry_after_ms: None,
            request_id: None,
            body: None,
            retryable: None,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| self.kind.is_retryable())
    }

    /// Whether the provider refused a picture or a document of the request, as far as its message says. The caller knows whether there was one.
    pub fn is_about_media(&self) -> bool {
        let message = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        match self.kind {
            ErrorKind::Invalid | ErrorKind::ContentFilter | ErrorKind::NotFound => says(MEDIA_WORDS),
            // Local servers answer so if a model reads no pictures.
            ErrorKind::Server => says(MEDIA_WORDS) && says(REFUSAL_WORDS),
            ErrorKind::Auth
            | ErrorKind::RateLimited
            | ErrorKind::Quota
            | ErrorKind::Overloaded
            | ErrorKind::Overflow
            | ErrorKind::TooLarge
            | ErrorKind::Transport
            | ErrorKind::Truncated
            | ErrorKind::Timeout
            | ErrorKind::Protocol => false,
        }
    }

    /// Returns the error with the provider's own verdict on retrying.
    #[must_use]
    pub fn with_retryable(mut self, retryable: Option<bool>) -> Self {
        self.retryable = retryable.or(self.retryable);
        self
    }

    /// Returns the error with the provider's answer, cut to its bound.
    #[must_use]
    pub fn with_body(mut self, body: &str) -> Self {
        self.body = (!body.is_empty()).then(|| bounded(body, MODEL_ERROR_BODY_BYTES_MAX));
        self
    }

    /// Returns the error with the name of its source: `"{who}: {message}"`.
    #[must_use]
    pub fn of(mut self, who: &str) -> Self {
        self.message = bounded(&format!("{who}: {}", self.message), MODEL_ERROR_MESSAGE_BYTES_MAX);
        self
    }
}

/// The error for an answer that violates the protocol. It quotes the beginning of the offending event.
pub(crate) fn broken(what: &str, data: &str) -> Error {
    let quote = bounded(data, QUOTE_BYTES_MAX);
    Error::new(ErrorKind::Protocol, format!("{what}: `{quote}`")).with_body(data)
}

/// The error for an answer that stops before it is complete.
pub(crate) fn truncated() -> Error {
    Error::new(ErrorKind::Truncated, "the answer ended before it was complete")
}

/// The first `bytes_max` bytes of `text`, cut at a character boundary; `…` marks the cut.
pub(crate) fn bounded(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mark = "…";
    let end = text.floor_char_boundary(bytes_max.saturating_sub(mark.len()));
    format!("{}{mark}", &text[..end])
}

#[cfg(test)]
mod tests;
