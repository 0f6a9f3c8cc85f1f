//! The failures of model calls: the error that a session shows, and whether another attempt may help.

use domain::{
    conversation::message::{Error, ErrorData},
    turn::{
        outcome::{ANSWER_EMPTY, MEDIA_REFUSED},
        signal::ModelFailure,
    },
};
use llm::{error::ErrorKind, event::Finish};
use rpc::v1::ErrorCode;

/// The failure of a call.
pub(super) fn of(error: &llm::error::Error, provider_id: &str) -> ModelFailure {
    ModelFailure {
        error: session_error(error, provider_id),
        retryable: error.is_retryable(),
        retry_after_ms: error.retry_after_ms,
    }
}

/// The failure of a call whose pictures or documents the provider refused: the next attempt is without them, at once.
pub(super) fn media(error: &llm::error::Error, provider_id: &str) -> ModelFailure {
    let mut shown = session_error(error, provider_id);
    API_ERROR.clone_into(&mut shown.name);
    (shown.data.code, shown.data.is_retryable) = (Some(MEDIA_REFUSED.to_owned()), Some(true));
    ModelFailure { error: shown, retryable: true, retry_after_ms: Some(0) }
}

/// The failure of a call whose answer has neither text nor calls. Only the first one is repeated.
pub(super) fn empty(is_repeated: bool) -> ModelFailure {
    let again = if is_repeated { " again, so the turn ends" } else { "" };
    let message = format!("the model ended its answer without a text or a tool call{again}");
    let mut error = Error::new(API_ERROR, message);
    (error.data.code, error.data.is_retryable) = (Some(ANSWER_EMPTY.to_owned()), Some(!is_repeated));
    ModelFailure { error, retryable: !is_repeated, retry_after_ms: Some(0) }
}

/// OpenCode's name for the failure of a provider.
const API_ERROR: &str = "APIError";

/// The error of an answer that was cut off.
pub(super) fn cut_off(reason: Finish) -> Option<Error> {
    match reason {
        Finish::Length => Some(Error::new(
            "MessageOutputLengthError",
            "The model's answer reached its length limit and was cut off",
        )),
        Finish::ContentFilter => {
            Some(Error::new("ContentFilterError", "The provider's content filter stopped the answer"))
        }
        Finish::Stop | Finish::ToolCalls | Finish::Other => None,
    }
}

/// A provider's error under OpenCode's name for it.
fn session_error(error: &llm::error::Error, provider_id: &str) -> Error {
    let message = domain::text::without_nul(&error.message).into_owned();
    let name = match error.kind {
        // For an answer beyond one of our bounds, OpenCode has no name.
        ErrorKind::TooLarge => return Error::coded(ErrorCode::AnswerTooLarge.as_str(), message),
        ErrorKind::Auth => "ProviderAuthError",
        ErrorKind::Overflow => "ContextOverflowError",
        ErrorKind::ContentFilter => "ContentFilterError",
        ErrorKind::NotFound
        | ErrorKind::RateLimited
        | ErrorKind::Quota
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::Invalid
        | ErrorKind::Transport
        | ErrorKind::Truncated
        | ErrorKind::Timeout
        | ErrorKind::Protocol => API_ERROR,
    };
    Error {
        name: name.to_owned(),
        data: Box::new(ErrorData {
            message,
            status_code: error.status,
            is_retryable: Some(error.is_retryable()),
            provider_id: Some(provider_id.to_owned()),
            retries: None,
            code: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_beyond_a_bound_has_a_stable_code() {
        let error = session_error(&llm::error::Error::new(ErrorKind::TooLarge, "too long"), "p");
        let want =
            json!({"name": "UnknownError", "data": {"message": "too long", "ref": "answer_too_large"}});
        assert_eq!(serde_json::to_value(error).unwrap(), want);
        let other = session_error(&llm::error::Error::new(ErrorKind::Protocol, "odd"), "p");
        assert_eq!(other.name, "APIError");
    }

    #[test]
    fn an_empty_answer_is_repeated_once() {
        for (is_repeated, retryable) in [(false, true), (true, false)] {
            let failure = empty(is_repeated);
            let code = failure.error.data.code.as_deref();
            assert_eq!((failure.retryable, code), (retryable, Some("answer_empty")));
        }
    }
}
