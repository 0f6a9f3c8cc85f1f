//! Why a push is refused. The text says what to do.

use super::problem::Problems;
use crate::egress::git::credential::SecretRefusal;
use domain::{egress::push::branch::BranchError, secret::SecretName};
use rpc::v1::ErrorCode;

/// Characters of a sentence of git or of a server.
const REASON_CHARS: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    #[error("this server cannot push: {0}")]
    Unavailable(String),
    /// Other pushes leave no room.
    #[error("too many pushes are running; try again")]
    Busy,
    /// The branch is none, or not one of this session.
    #[error("cannot push to the branch {name}: {error}")]
    Branch {
        name: String,
        /// What is wrong with it.
        error: BranchError,
    },
    /// The branch is the one that the repository shows first.
    #[error("{0} is the default branch of the repository; push to another branch, and open a pull request")]
    DefaultBranch(String),
    /// The secret opens no repository.
    #[error(transparent)]
    Secret(#[from] SecretRefusal),
    /// The server refuses the credential.
    #[error(
        "{host} refuses the secret {secret} for pushes to this repository: it may have expired, or lack the right to write; set a new value with `flotilla secret set {secret}`"
    )]
    Unauthorized { host: String, secret: SecretName },
    /// The server knows no such repository, or does not show it to this credential.
    #[error("{host} has no such repository, or the secret {secret} may not write to it")]
    NotFound { host: String, secret: SecretName },
    /// The server does not answer, or not as one of git.
    #[error("{0}")]
    Unreachable(String),
    /// The server does not have the commit on which the session's files are based.
    #[error(
        "the repository does not have the commit {0} on which the session began: it was never pushed, or it was removed; push it, or bring the changes into a clone with `flotilla checkout`, where they can be rebased"
    )]
    BaseMissing(String),
    /// The branch has a commit that this session did not push.
    #[error(
        "the branch {branch} of the repository is at {tip}, which this session did not push; push to another branch with --branch, or bring the changes together in a clone with `flotilla checkout`"
    )]
    BranchMoved { branch: String, tip: String },
    /// The files are those of the base commit.
    #[error("the session has changed no files, so there is nothing to push")]
    Nothing,
    /// The inspection found changes that no push may bring.
    #[error("{0}")]
    Problems(Problems),
    /// There is too much of something.
    #[error("the push has more than {most} {what}; `flotilla checkout` brings the changes into a clone")]
    TooLarge {
        /// The limit.
        most: u64,
        what: &'static str,
    },
    /// Git or this broker does not take the commits.
    #[error("the commits cannot be pushed: {0}")]
    ContentInvalid(String),
    /// The server took the commits and refused to move the branch.
    #[error("{host} refused the push: {reason}")]
    Refused { host: String, reason: String },
    /// The push was not finished.
    #[error("{0}; push again")]
    Interrupted(&'static str),
    /// The caller is gone, and reads no answer.
    #[error("the caller left")]
    CallerLeft,
    #[error("the quarantine of the push failed; see the log of the broker")]
    Failed,
}

impl PushError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unavailable(_) => ErrorCode::PushUnavailable,
            Self::Busy => ErrorCode::PushBusy,
            Self::Branch { .. } => ErrorCode::PushBranchInvalid,
            Self::DefaultBranch(_) => ErrorCode::PushBranchDefault,
            Self::Secret(SecretRefusal::Missing { .. } | SecretRefusal::NotInstalled { .. }) => {
                ErrorCode::PushSecretMissing
            }
            Self::Secret(SecretRefusal::Invalid(_) | SecretRefusal::NotFor(_)) => {
                ErrorCode::PushSecretInvalid
            }
            Self::Secret(SecretRefusal::Unavailable(_)) => ErrorCode::PushSecretUnavailable,
            Self::Unauthorized { .. } => ErrorCode::PushUnauthorized,
            Self::NotFound { .. } => ErrorCode::PushRepositoryUnknown,
            Self::Unreachable(_) => ErrorCode::PushUnreachable,
            Self::BaseMissing(_) => ErrorCode::PushBaseMissing,
            Self::BranchMoved { .. } => ErrorCode::PushBranchMoved,
            Self::Nothing => ErrorCode::PushNothing,
            Self::Problems(problems) => problems.code(),
            Self::TooLarge { .. } => ErrorCode::PushTooLarge,
            Self::ContentInvalid(_) => ErrorCode::PushContentInvalid,
            Self::Refused { .. } => ErrorCode::PushRefused,
            Self::Interrupted(_) => ErrorCode::PushInterrupted,
            Self::CallerLeft => ErrorCode::CallerLeft,
            Self::Failed => ErrorCode::Internal,
        }
    }

    /// Refuses a push with problems.
    pub(super) fn check(problems: Problems) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self::Problems(problems)) }
    }

    /// An error of this machine, with its cause in the log.
    pub(crate) fn failed(action: &'static str, error: &dyn std::error::Error) -> Self {
        tracing::error!("a push failed: {action}: {error}");
        Self::Failed
    }
}

/// What git or a server said, for people: bounded, and nothing in it changes a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(REASON_CHARS).collect()
}
