//! The stable codes of errors: how each is spelled, and what it means to a caller that does not know it. The list is `error.proto`; `rpc` puts codes into
//! statuses.

use crate::v1::{ErrorCode, ErrorKind};
use domain::policy::quota::Resource;
use std::borrow::Cow;

include!(concat!(env!("OUT_DIR"), "/codes.rs"));

impl ErrorKind {
    /// The number of its gRPC status.
    pub const fn grpc(self) -> i32 {
        match self {
            Self::Cancelled => 1,
            Self::Invalid => 3,
            Self::DeadlineExceeded => 4,
            Self::NotFound => 5,
            Self::AlreadyExists => 6,
            Self::Forbidden => 7,
            Self::Busy | Self::Exhausted => 8,
            Self::Precondition => 9,
            Self::Aborted => 10,
            Self::OutOfRange => 11,
            Self::Internal | Self::Unspecified => 13,
            Self::Unavailable => 14,
            Self::DataLoss => 15,
            Self::Unauthenticated => 16,
        }
    }

    /// Its HTTP status.
    pub const fn http(self) -> u16 {
        match self {
            Self::Invalid | Self::OutOfRange => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Precondition | Self::Aborted => 409,
            Self::Busy | Self::Exhausted => 429,
            Self::DeadlineExceeded
            | Self::Cancelled
            | Self::DataLoss
            | Self::Internal
            | Self::Unspecified => 500,
            Self::Unavailable => 503,
        }
    }

    /// Whether the same call may succeed soon, although nobody corrects anything.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::Aborted | Self::Busy | Self::DeadlineExceeded | Self::Cancelled | Self::Unavailable => true,
            Self::Invalid
            | Self::OutOfRange
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::AlreadyExists
            | Self::Precondition
            | Self::Exhausted
            | Self::DataLoss
            | Self::Internal
            | Self::Unspecified => false,
        }
    }
}

impl ErrorCode {
    /// Its spelling: the name of the value in `error.proto` in lower case, without the prefix.
    pub const fn as_str(self) -> &'static str {
        CODES[self as usize].0
    }

    /// The code of this spelling. `None`: a newer version may know it.
    pub fn parse(text: &str) -> Option<Self> {
        let number = CODES.iter().position(|(name, _)| *name == text).filter(|number| *number > 0)?;
        Self::try_from(i32::try_from(number).ok()?).ok()
    }

    /// The code of a full quota.
    pub const fn of_quota(resource: Resource) -> Self {
        match resource {
            Resource::Sessions => Self::SessionsTooMany,
            Resource::Projects => Self::ProjectsTooMany,
            Resource::StoredBytes => Self::StorageFull,
        }
    }

    /// Its HTTP status: that of its kind, unless HTTP or OpenCode has a better one.
    pub const fn http(self) -> u16 {
        match self {
            // To OpenCode, an answered request no longer exists.
            Self::AlreadyResolved => 404,
            Self::BodyTooSlow => 408,
            Self::BodyTooLarge => 413,
            Self::ContentTypeInvalid => 415,
            Self::HeadTooLarge => 431,
            code => code.kind().http(),
        }
    }

    /// What it means. A service that means something else by it says so (`rpc::status::error_as`).
    pub const fn kind(self) -> ErrorKind {
        CODES[self as usize].1
    }
}

/// For errors of a program that has further codes of its own.
impl From<ErrorCode> for Cow<'static, str> {
    fn from(code: ErrorCode) -> Self {
        Self::Borrowed(code.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::turn::outcome::{ANSWER_EMPTY, MEDIA_REFUSED, NEEDS_HUMAN};
    use std::collections::BTreeSet;

    fn codes() -> Vec<ErrorCode> {
        (1..).map_while(|number| ErrorCode::try_from(number).ok()).collect()
    }

    #[test]
    fn each_code_has_one_spelling() {
        for code in codes() {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
            assert_eq!(code.as_str_name(), format!("ERROR_CODE_{}", code.as_str().to_uppercase()));
        }
        let spellings: BTreeSet<_> = codes().into_iter().map(ErrorCode::as_str).collect();
        assert_eq!((spellings.len(), spellings.contains("workspace_lost")), (CODES.len() - 1, true));
        for other in ["", "unspecified", "WORKSPACE_LOST", "of_a_newer_version"] {
            assert_eq!(ErrorCode::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_codes_of_stored_errors_are_spelled_alike() {
        let stored = [ANSWER_EMPTY, MEDIA_REFUSED, NEEDS_HUMAN].map(ErrorCode::parse);
        let codes = [ErrorCode::AnswerEmpty, ErrorCode::MediaRefused, ErrorCode::NeedsHuman];
        assert_eq!(stored, codes.map(Some));
    }

    #[test]
    fn a_code_decides_both_statuses_and_whether_a_repeat_helps() {
        let of = |code: ErrorCode| (code.kind().grpc(), code.http(), code.kind().is_transient());
        assert_eq!(of(ErrorCode::WorkspaceLost), (9, 409, false));
        assert_eq!(of(ErrorCode::HelpersBusy), (14, 503, true));
        assert_eq!(of(ErrorCode::RequestsTooMany), (8, 429, true));
        assert_eq!(of(ErrorCode::StorageFull), (8, 429, false));
        assert_eq!(of(ErrorCode::AlreadyResolved), (9, 404, false));
        assert_eq!(of(ErrorCode::BodyTooLarge), (11, 413, false));
    }
}
