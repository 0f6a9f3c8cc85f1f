//! Errors on the wire: a gRPC status with a stable code for programs and one sentence for people.

use crate::v1::ErrorCode;
use std::{collections::HashMap, time::Duration};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Namespace of our error codes in `google.rpc.ErrorInfo.domain`.
pub const DOMAIN: &str = "flotilla";
/// The metadata of a refusal by a fence: the highest epoch that it knows.
const HIGHEST_EPOCH: &str = "highest_epoch";

/// Builds a status with the code as `google.rpc.ErrorInfo.reason`, and with the gRPC status that the code has.
pub fn error(code: ErrorCode, message: impl Into<String>) -> Status {
    error_as(Code::from(code.kind().grpc()), code.as_str(), message)
}

/// Builds a status for a code that means something else here, or that another service sent: its spelling may be unknown to this version.
pub fn error_as(grpc: Code, code: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(code, DOMAIN, HashMap::new());
    Status::with_error_details(grpc, message, details)
}

/// Returns the stable code of a status that [`error`] made, on either side of the wire. `None`: it has none, or one that only a newer version knows;
/// [`code_of`] tells these apart.
pub fn code(status: &Status) -> Option<ErrorCode> {
    ErrorCode::parse(&code_of(status)?)
}

/// Returns the stable code of a status as it is spelled, also one that only a newer version knows.
pub fn code_of(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == DOMAIN).map(|info| info.reason)
}

/// Builds the status for a caller whose epoch is below `highest`.
pub fn stale(message: impl Into<String>, highest: u64) -> Status {
    let code = ErrorCode::EpochStale;
    let metadata = HashMap::from([(HIGHEST_EPOCH.to_owned(), highest.to_string())]);
    let details = ErrorDetails::with_error_info(code.as_str(), DOMAIN, metadata);
    Status::with_error_details(Code::from(code.kind().grpc()), message, details)
}

/// Returns the epoch of a status that [`stale`] made, on either side of the wire.
pub fn highest_epoch_of(status: &Status) -> Option<u64> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    info.metadata.get(HIGHEST_EPOCH)?.parse().ok()
}

/// Whether a service of ours refused the token of this process, or its use for this call: a mistake of the operator.
pub fn refuses_token(status: &Status) -> bool {
    matches!(code(status), Some(ErrorCode::TokenInvalid | ErrorCode::CallerNotAllowed))
}

/// The caller made too many of these calls; the next may come after `retry_after` (`google.rpc.RetryInfo`).
pub fn exhausted(code: ErrorCode, message: impl Into<String>, retry_after: Duration) -> Status {
    let mut details = ErrorDetails::with_error_info(code.as_str(), DOMAIN, HashMap::new());
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::from(code.kind().grpc()), message, details)
}

/// Returns the delay of a status that [`exhausted`] made, on either side of the wire.
pub fn retry_after_of(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_survives_the_wire() {
        let status = error(ErrorCode::PromptEmpty, "the prompt is empty");
        let response: http::Response<()> = status.clone().into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!(
            (code_of(&parsed).as_deref(), code(&parsed)),
            (Some("prompt_empty"), Some(ErrorCode::PromptEmpty))
        );
        assert_eq!(parsed.message(), "the prompt is empty");
        assert_eq!(code_of(&Status::internal("other")), None);
        let newer = error_as(Code::Aborted, "of_a_newer_version", "why");
        assert_eq!((code_of(&newer).as_deref(), code(&newer)), (Some("of_a_newer_version"), None));
    }

    #[test]
    fn the_epoch_of_a_fence_survives_the_wire() {
        let status = stale("too low", 10);
        let response: http::Response<()> = status.into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!(highest_epoch_of(&parsed), Some(10));
        assert_eq!(code(&parsed), Some(ErrorCode::EpochStale));
        assert_eq!(highest_epoch_of(&error(ErrorCode::EpochStale, "of an earlier version")), None);
    }

    #[test]
    fn the_time_to_come_again_survives_the_wire() {
        let wait = Duration::from_millis(1_500);
        let response: http::Response<()> =
            exhausted(ErrorCode::TooManyAttempts, "too many", wait).into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!((code(&parsed), retry_after_of(&parsed)), (Some(ErrorCode::TooManyAttempts), Some(wait)));
        assert_eq!(retry_after_of(&error(ErrorCode::PromptEmpty, "the prompt is empty")), None);
    }
}
