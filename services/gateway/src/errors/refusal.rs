//! Why the sandbox service refused a call. Only this file reads the text of a status code.

use chassis::grpc::backend::Backend;
use rpc::{
    status::refuses_token,
    v1::{ErrorCode, ErrorKind},
};
use tonic::{Code, Status};

/// Why the sandbox refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `None`: only a newer sandbox service knows it.
    pub(crate) code: Option<ErrorCode>,
    /// The code, as it is spelled.
    pub(crate) spelling: String,
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        // A refused token is the operator's mistake, and no tenant's.
        match rpc::status::code_of(&status).filter(|_| !refuses_token(&status)) {
            Some(spelling) => Self {
                code: ErrorCode::parse(&spelling),
                spelling,
                kind: kind(status.code()),
                message: status.message().to_owned(),
            },
            None => {
                report(&status);
                let message = "the sandbox service does not answer; try again later".to_owned();
                let code = ErrorCode::SandboxUnavailable;
                Self { code: Some(code), spelling: code.as_str().to_owned(), kind: code.kind(), message }
            }
        }
    }
}

/// Logs why the service did not answer.
pub(crate) fn report(status: &Status) {
    Backend::Sandbox.report(status, refuses_token);
}

/// What the code of a refusal means.
pub(super) fn kind(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument => ErrorKind::Invalid,
        Code::OutOfRange => ErrorKind::OutOfRange,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::Forbidden,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::FailedPrecondition => ErrorKind::Precondition,
        Code::Aborted => ErrorKind::Aborted,
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_silence_gets_one() {
        for code in ["epoch_stale", "file_not_permitted", "disk_full", "of_a_newer_version"] {
            let refusal = Refusal::from(rpc::status::error_as(Code::FailedPrecondition, code, "why"));
            assert_eq!((refusal.spelling.as_str(), refusal.kind), (code, ErrorKind::Precondition));
            assert_eq!(refusal.code, ErrorCode::parse(code));
            assert_eq!(refusal.message, "why");
        }
        for status in [
            Status::unavailable("connection refused"),
            rpc::status::error(ErrorCode::TokenInvalid, "the token is missing or wrong"),
        ] {
            let silent = Refusal::from(status);
            assert_eq!(
                (silent.code, silent.kind),
                (Some(ErrorCode::SandboxUnavailable), ErrorKind::Unavailable)
            );
            assert!(!silent.message.contains("token"), "{}", silent.message);
        }
    }
}
