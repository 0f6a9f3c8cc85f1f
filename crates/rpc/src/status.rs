//! Errors on the wire: a gRPC status with a stable `code` for programs and one sentence for people.

use std::{collections::HashMap, time::Duration};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Namespace of our error codes in `google.rpc.ErrorInfo.domain`.
pub const DOMAIN: &str = "flotilla";
/// The metadata of a refusal by a fence: the highest epoch that it knows.
const HIGHEST_EPOCH: &str = "highest_epoch";

/// Builds a status that carries `code` (for example `prompt_empty`) as `google.rpc.ErrorInfo.reason`.
pub fn error(grpc: Code, code: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(code, DOMAIN, HashMap::new());
    Status::with_error_details(grpc, message, details)
}

/// Returns the stable code of a status that [`error`] made, on either side of the wire.
pub fn code_of(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == DOMAIN).map(|info| info.reason)
}

/// Builds a status with `code` for a caller whose epoch is below `highest`.
pub fn stale(grpc: Code, code: &str, message: impl Into<String>, highest: u64) -> Status {
    let metadata = HashMap::from([(HIGHEST_EPOCH.to_owned(), highest.to_string())]);
    Status::with_error_details(grpc, message, ErrorDetails::with_error_info(code, DOMAIN, metadata))
}

/// Returns the epoch of a status that [`stale`] made, on either side of the wire.
pub fn highest_epoch_of(status: &Status) -> Option<u64> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    info.metadata.get(HIGHEST_EPOCH)?.parse().ok()
}

/// Whether a service of ours refused the token of this process, or its use for this call: a mistake of the operator.
pub fn refuses_token(status: &Status) -> bool {
    matches!(code_of(status).as_deref(), Some("token_invalid" | "caller_not_allowed"))
}

/// The caller sent something invalid; the message names it and the remedy.
pub fn invalid(code: &'static str, message: impl Into<String>) -> Status {
    error(Code::InvalidArgument, code, message)
}

/// The caller's tenant has no such object.
pub fn not_found(code: &'static str, message: impl Into<String>) -> Status {
    error(Code::NotFound, code, message)
}

/// The current state does not allow the call.
pub fn precondition(code: &'static str, message: impl Into<String>) -> Status {
    error(Code::FailedPrecondition, code, message)
}

/// A backend is down; the same call may succeed soon.
pub fn unavailable(code: &'static str, message: impl Into<String>) -> Status {
    error(Code::Unavailable, code, message)
}

/// The caller made too many of these calls; the next may come after `retry_after` (`google.rpc.RetryInfo`).
pub fn exhausted(code: &str, message: impl Into<String>, retry_after: Duration) -> Status {
    let mut details = ErrorDetails::with_error_info(code, DOMAIN, HashMap::new());
    details.set_retry_info(Some(retry_after));
    Status::with_error_details(Code::ResourceExhausted, message, details)
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
        let status = invalid("prompt_empty", "the prompt is empty");
        let response: http::Response<()> = status.clone().into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!(code_of(&parsed).as_deref(), Some("prompt_empty"));
        assert_eq!(parsed.message(), "the prompt is empty");
        assert_eq!(code_of(&Status::internal("other")), None);
    }

    #[test]
    fn the_epoch_of_a_fence_survives_the_wire() {
        let status = stale(Code::FailedPrecondition, "epoch_stale", "too low", 10);
        let response: http::Response<()> = status.into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!(highest_epoch_of(&parsed), Some(10));
        assert_eq!(code_of(&parsed).as_deref(), Some("epoch_stale"));
        assert_eq!(highest_epoch_of(&invalid("epoch_stale", "of an earlier version")), None);
    }

    #[test]
    fn the_time_to_come_again_survives_the_wire() {
        let wait = Duration::from_millis(1_500);
        let response: http::Response<()> = exhausted("too_many", "too many", wait).into_http();
        let parsed = Status::from_header_map(response.headers()).expect("a status in the headers");
        assert_eq!((code_of(&parsed).as_deref(), retry_after_of(&parsed)), (Some("too_many"), Some(wait)));
        assert_eq!(retry_after_of(&invalid("prompt_empty", "the prompt is empty")), None);
    }
}
