//! Why a model call failed, in terms of what the caller can do about it.

use domain::limits::{MODEL_ERROR_BODY_BYTES_MAX, MODEL_ERROR_MESSAGE_BYTES_MAX};

/// Bytes of an answer that an error quotes.
pub(crate) const QUOTE_BYTES_MAX: usize = 200;

/// A failed model call. The text is one sentence with the provider's own message; keys are never part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// HTTP status, also when the provider sent it inside a stream.
    pub status: Option<u16>,
    /// For people; at most [`MODEL_ERROR_MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// How long the provider asks to wait; milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The provider's id of the call.
    pub request_id: Option<String>,
    /// The provider's answer, at most [`MODEL_ERROR_BODY_BYTES_MAX`] bytes. May quote the prompt: not for logs.
    pub body: Option<String>,
    /// Set where the provider or the place of the failure decides otherwise than the kind.
    retryable: Option<bool>,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// No such model or address.
    NotFound,
    /// Too many requests: wait.
    RateLimited,
    /// The account has no money or quota left: waiting does not help.
    Quota,
    /// The provider has too much to do: wait.
    Overloaded,
    /// The provider failed.
    Server,
    /// The conversation does not fit into the model's context: compact it.
    Overflow,
    /// The provider's filter refused the request.
    ContentFilter,
    /// The provider refused the request as malformed.
    Invalid,
    /// The answer is larger than our bounds.
    TooLarge,
    /// The connection failed.
    Transport,
    /// The answer ended before its end.
    Truncated,
    /// The provider was silent for too long.
    Timeout,
    /// What came back is not the protocol.
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
    /// An error of `kind` that says `message` (cut to its bound).
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

    /// The same error with the provider's own verdict on trying again.
    #[must_use]
    pub fn with_retryable(mut self, retryable: Option<bool>) -> Self {
        self.retryable = retryable.or(self.retryable);
        self
    }

    /// The same error with the provider's answer, cut to its bound.
    #[must_use]
    pub fn with_body(mut self, body: &str) -> Self {
        self.body = (!body.is_empty()).then(|| bounded(body, MODEL_ERROR_BODY_BYTES_MAX));
        self
    }

    /// The same error, saying whose it is: `"{who}: {message}"`.
    #[must_use]
    pub fn of(mut self, who: &str) -> Self {
        self.message = bounded(&format!("{who}: {}", self.message), MODEL_ERROR_MESSAGE_BYTES_MAX);
        self
    }
}

/// The error for an answer that breaks the protocol; quotes the beginning of the offending event.
pub(crate) fn broken(what: &str, data: &str) -> Error {
    let quote = bounded(data, QUOTE_BYTES_MAX);
    Error::new(ErrorKind::Protocol, format!("{what}: `{quote}`")).with_body(data)
}

/// The error for an answer that stops in the middle.
pub(crate) fn truncated() -> Error {
    Error::new(ErrorKind::Truncated, "the answer stopped before it was complete")
}

/// The first `bytes_max` bytes of `text`, at a character boundary, with `…` where something is missing.
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
