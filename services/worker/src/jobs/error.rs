//! Why a job stops before it rests.

use rpc::v1::ErrorCode;
use std::time::Duration;
use store::error::Error as StoreError;
use tonic::Status;

#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// Another worker has the job, or this one may not work any more.
    #[error("another worker has the job")]
    Fenced,
    /// It cannot go on at this moment.
    #[error("{reason}")]
    Away {
        reason: String,
        /// When it may go on, if somebody said so.
        retry_after: Option<Duration>,
    },
    /// Its state or an input was written by another version.
    #[error("cannot read the job: {0}")]
    Unreadable(serde_json::Error),
    #[error("cannot store the job: {0}")]
    Store(StoreError),
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced => Self::Fenced,
            error => Self::Store(error),
        }
    }
}

/// What an answer without success of the broker or the sandbox means for an action.
pub(super) enum Refusal {
    /// The same action may succeed later.
    Later(JobError),
    /// It never succeeds.
    Final(Option<ErrorCode>, String),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let code = rpc::status::code(&status);
        let is_final =
            code.is_some_and(|code| !code.kind().is_transient()) && !rpc::status::refuses_token(&status);
        if is_final {
            let spelling = rpc::status::code_of(&status).unwrap_or_default();
            return Self::Final(code, format!("{spelling}: {}", status.message()));
        }
        let retry_after = rpc::status::retry_after_of(&status);
        Self::Later(JobError::Away { reason: status.message().to_owned(), retry_after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_succeed_later_is_tried_again() {
        for (code, is_final) in [
            (ErrorCode::ForgeRefused, true),
            (ErrorCode::ForgeNotFound, true),
            (ErrorCode::ForgeUnauthorized, true),
            (ErrorCode::PushPathRefused, true),
            (ErrorCode::WorkspaceLost, true),
            (ErrorCode::ForgeUnreachable, false),
            (ErrorCode::ForgeFailed, false),
            (ErrorCode::ForgeBusy, false),
            (ErrorCode::PushBusy, false),
            (ErrorCode::StoreUnavailable, false),
            (ErrorCode::TokenInvalid, false),
        ] {
            let refusal = Refusal::from(rpc::status::error(code, "why"));
            assert_eq!(matches!(refusal, Refusal::Final(..)), is_final, "{code:?}");
        }
        assert!(matches!(Refusal::from(Status::unavailable("connection refused")), Refusal::Later(_)));
    }
}
