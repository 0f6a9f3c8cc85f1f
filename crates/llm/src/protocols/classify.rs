//! Converts a provider's error answer to an [`Error`]. Providers agree on little, so this looks at the text, the code,
//! the type and the status, the most specific first.

use crate::{
    error::{Error, ErrorKind, QUOTE_BYTES_MAX},
    retry_after,
};
use serde_json::Value;

/// Phrases (lower case) in errors about an overlong conversation.
const OVERFLOW_TEXTS: &[&str] = &[
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the maximum number of tokens",
    "maximum prompt length is",
    "reduce the length of the messages",
    "maximum context length",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "context length exceeded",
    "context_length_exceeded",
    "context window is full",
    "too many tokens in the prompt",
    "request_too_large",
];

/// Phrases (lower case) in errors about an exhausted account.
const QUOTA_TEXTS: &[&str] = &[
    "credit balance is too low",
    "insufficient_quota",
    "insufficient credits",
    "exceeded your current quota",
];

/// The content of an error object, independent of its shape.
#[derive(Debug, Default)]
struct Detail {
    message: String,
    /// Code, type and status words, in lower case, separated by spaces.
    words: String,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

/// The error for an answer with `status` and `body`.
pub fn from_answer(status: u16, body: &str) -> Error {
    let detail = serde_json::from_str::<Value>(body).map_or_else(|_| plain(body), |value| detail(&value));
    build(Some(status), &detail).with_body(body)
}

/// The error for an error event inside a stream. `value` is the event, or the error object itself.
pub fn from_event(value: &Value) -> Error {
    let detail = detail(value);
    build(detail.status, &detail).with_body(&value.to_string())
}

/// The error that `value` reports, if it does: an error object, alone or in a list.
pub(crate) fn find_error(value: &Value) -> Option<Error> {
    let is_word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str) == Some("error");
    let is_error = |value: &&Value| {
        let has_error = value.get("error").is_some_and(|error| !error.is_null());
        has_error || is_word(value, "type") || is_word(value, "object")
    };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    values.iter().find(is_error).map(from_event)
}

fn build(status: Option<u16>, detail: &Detail) -> Error {
    let kind = kind(status, detail);
    let sentence = sentence(kind);
    let status_text = status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
    let message = match detail.message.as_str() {
        "" => format!("{sentence}{status_text}"),
        message => format!("{sentence}{status_text}: {message}"),
    };
    let mut error = Error::new(kind, message);
    error.status = status;
    error.retry_after_ms = detail.retry_after_ms;
    // The model wrote a call that the provider itself refused. Another sample usually succeeds.
    let is_bad_sample = detail.words.contains("tool_use_failed");
    error.with_retryable(is_bad_sample.then_some(true))
}

fn kind(status: Option<u16>, detail: &Detail) -> ErrorKind {
    let message = detail.message.to_lowercase();
    let says =
        |texts: &[&str]| texts.iter().any(|text| message.contains(text) || detail.words.contains(text));
    // Gemini writes "quota" for every rate limit as well. Only a temporary limit comes with a delay.
    let is_soon_over = status == Some(429) && detail.retry_after_ms.is_some();
    if (says(QUOTA_TEXTS) && !is_soon_over) || status == Some(402) {
        return ErrorKind::Quota;
    }
    // "Too many tokens per minute" is a rate limit, never an overflow.
    if status != Some(429) && (says(OVERFLOW_TEXTS) || says(&["exceed_context_size"]) || status == Some(413))
    {
        return ErrorKind::Overflow;
    }
    // `invalid_request_error` and `server_error` are less specific than any status.
    let is_invalid = detail.words.contains("invalid_request_error");
    let vague = if is_invalid { ErrorKind::Invalid } else { ErrorKind::Server };
    by_words(&detail.words).or_else(|| status.map(by_status)).unwrap_or(vague)
}

fn by_words(words: &str) -> Option<ErrorKind> {
    const WORDS: &[(&str, ErrorKind)] = &[
        ("invalid_api_key", ErrorKind::Auth),
        ("authentication_error", ErrorKind::Auth),
        ("permission_error", ErrorKind::Auth),
        ("permission_denied", ErrorKind::Auth),
        ("unauthenticated", ErrorKind::Auth),
        ("api_key_invalid", ErrorKind::Auth),
        ("billing", ErrorKind::Quota),
        ("model_not_found", ErrorKind::NotFound),
        ("not_found_error", ErrorKind::NotFound),
        ("rate_limit", ErrorKind::RateLimited),
        ("too_many_requests", ErrorKind::RateLimited),
        ("resource_exhausted", ErrorKind::RateLimited),
        ("overloaded", ErrorKind::Overloaded),
        ("content_filter", ErrorKind::ContentFilter),
        ("content_policy_violation", ErrorKind::ContentFilter),
        ("responsibleaipolicyviolation", ErrorKind::ContentFilter),
        ("timeout_error", ErrorKind::Timeout),
        ("deadline_exceeded", ErrorKind::Timeout),
        ("tool_use_failed", ErrorKind::Invalid),
    ];
    WORDS.iter().find(|(word, _)| words.contains(word)).map(|(_, kind)| *kind)
}

fn by_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 => ErrorKind::Auth,
        404 | 410 => ErrorKind::NotFound,
        408 | 504 => ErrorKind::Timeout,
        409 => ErrorKind::Server,
        429 => ErrorKind::RateLimited,
        503 | 529 => ErrorKind::Overloaded,
        400..=499 => ErrorKind::Invalid,
        500..=599 => ErrorKind::Server,
        _ => ErrorKind::Protocol,
    }
}

fn sentence(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Auth => "the provider refused the API key",
        ErrorKind::NotFound => "the provider has no such model or address",
        ErrorKind::RateLimited => "the provider's rate limit was reached",
        ErrorKind::Quota => "the account's quota or credit is used up",
        ErrorKind::Overloaded => "the provider is overloaded",
        ErrorKind::Server => "the provider failed",
        ErrorKind::Overflow => "the conversation is longer than the model's context",
        ErrorKind::ContentFilter => "the provider's content filter refused the request",
        ErrorKind::Invalid => "the provider refused the request",
        ErrorKind::TooLarge => "the answer is larger than the limit",
        ErrorKind::Transport => "the connection to the provider failed",
        ErrorKind::Truncated => "the answer ended before it was complete",
        ErrorKind::Timeout => "the provider did not answer in time",
        ErrorKind::Protocol => "the answer violates the protocol",
    }
}

/// Understands `{"error":{..}}`, `{"type":"error","error":{..}}`, `{"error":"text"}` and a bare error object.
fn detail(value: &Value) -> Detail {
    // Gemini wraps an error in a list.
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let object = match value.get("error") {
        Some(error @ Value::Object(_)) => error,
        Some(Value::String(text)) => {
            return Detail { message: text.clone(), ..word_detail(value) };
        }
        Some(_) | None => value,
    };
    let message =
        ["message", "detail", "msg"].iter().find_map(|key| object.get(key)?.as_str()).unwrap_or_default();
    Detail { message: message.to_owned(), ..word_detail(object) }
}

fn word_detail(object: &Value) -> Detail {
    let mut words = String::new();
    for key in ["code", "type", "status"] {
        if let Some(word) = object.get(key).and_then(Value::as_str) {
            words.push_str(&word.to_lowercase());
            words.push(' ');
        }
    }
    if let Some(word) = object.pointer("/innererror/code").and_then(Value::as_str) {
        words.push_str(&word.to_lowercase());
    }
    // Gemini: `{"@type":"…ErrorInfo","reason":"API_KEY_INVALID"}` and `{"@type":"…RetryInfo","retryDelay":"34.4s"}`.
    let details = || object.get("details").and_then(Value::as_array).into_iter().flatten();
    for reason in details().filter_map(|detail| detail.get("reason")?.as_str()) {
        words.push(' ');
        words.push_str(&reason.to_lowercase());
    }
    let delay = details().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s'));
    let retry_after_ms = retry_after::parse(None, delay, None);
    let status = ["status_code", "code", "status"].iter().find_map(|key| object.get(key)?.as_u64());
    let status =
        status.and_then(|status| u16::try_from(status).ok()).filter(|status| (400..600).contains(status));
    Detail { message: String::new(), words, status, retry_after_ms }
}

/// A body that is not JSON: its text, unless it is an HTML page.
fn plain(body: &str) -> Detail {
    let message = match is_html(body) {
        true => "an HTML page (is the base URL right, is a proxy in between?)".to_owned(),
        false => body.trim().to_owned(),
    };
    Detail { message, ..Detail::default() }
}

/// Whether `body` looks like an HTML page.
pub(crate) fn is_html(body: &str) -> bool {
    let start = body.trim_start_matches('\u{feff}').trim_start();
    let start = start[..start.floor_char_boundary(32)].to_lowercase();
    ["<!doctype", "<html", "<head", "<body", "<?xml"].iter().any(|tag| start.starts_with(tag))
}

/// The error for an answer that is not an event stream; it quotes its `beginning`.
pub(crate) fn not_a_stream(beginning: &[u8]) -> Error {
    let text = String::from_utf8_lossy(&beginning[..beginning.len().min(QUOTE_BYTES_MAX)]);
    let what = if is_html(&text) {
        "an HTML page (is the base URL right, is a proxy in between?)".to_owned()
    } else {
        format!("`{}`", text.trim())
    };
    Error::new(ErrorKind::Protocol, format!("the answer is not an event stream; it begins with {what}"))
}
