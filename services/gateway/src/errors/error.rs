//! Why a call fails: one type for the whole gateway. A protocol shows its code and its sentence; the cause stays in the log.

use super::{
    entity::Entity, forge_refusal::ForgeRefusal, invalid::Invalid, push_refusal::PushRefusal,
    refusal::Refusal,
};
use crate::scope::Scope;
use domain::{conversation::request, policy::quota::Level};
use rpc::v1::{ErrorCode, ErrorKind};
use std::time::Duration;

/// An error, by the action that the caller can take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The call has a mistake: correct it.
    #[error("{message}")]
    Invalid { mistake: Invalid, message: String },
    /// The tenant has no such object.
    #[error("{0}")]
    NotFound(Entity),

    /// Send a key.
    #[error("no API key; send it in the header `authorization: Bearer KEY`")]
    KeyMissing,
    /// Ask for another key.
    #[error("the API key is unknown or revoked; ask for a new one")]
    KeyUnknown,
    /// Try again later.
    #[error("too many wrong keys from this address or with this beginning; try again later")]
    TooManyAttempts { retry_after: Duration },
    /// Use a key with this scope.
    #[error("the role of the key does not allow this; it {}", .0.lack())]
    ScopeMissing(Scope),
    /// Ask the operator.
    #[error("{0}")]
    OperatorOnly(&'static str),
    /// Ask the operator to name the origin of the page.
    #[error("a page of another site may not do this; the operator can allow its origin (FLOTILLA_ORIGINS)")]
    OriginForbidden,
    /// Ask for a ticket, or for another one.
    #[error("{0}")]
    TerminalForbidden(&'static str),

    /// Use another idempotency key.
    #[error("the idempotency key was used before with another body")]
    IdempotencyConflict,
    /// Use another id.
    #[error("a session with this id was deleted; choose another id")]
    SessionDeleted,
    /// Try again when other requests have ended.
    #[error(
        "too many large requests, diffs, exports, forks, reverts and searches at the same time; try again"
    )]
    RequestsTooMany,
    /// Close streams, or try again later.
    #[error("too many event streams are open; close some, or try again later")]
    StreamsTooMany,
    /// Delete what is not needed, or ask the operator for a larger quota.
    #[error("{0}; delete sessions or projects that are not needed, or ask the operator for a larger quota")]
    QuotaFull(Level),
    /// Remove secrets that are not needed.
    #[error(
        "the tenant has {} secrets, the limit; remove those that are not needed",
        domain::limits::SECRETS_MAX
    )]
    SecretsTooMany,
    /// Let the session work first.
    #[error("the session has {0} waiting prompts; let it work first")]
    SessionFull(i64),
    /// Summarize the session, or start another one.
    #[error(
        "the prompts and notes since the last summary have {stored_bytes} bytes, the limit is {limit_bytes}; summarize the session first, \
         or start another one"
    )]
    PromptsTooLarge { stored_bytes: u64, limit_bytes: u64 },
    /// Ask an operator to release the session.
    #[error("the session is quarantined; an operator must release it")]
    Quarantined,
    /// Wait until the session is idle, or abort it.
    #[error("the session is busy; wait until it and its subtasks are idle, or abort it")]
    Busy,
    /// Delete its sessions first.
    #[error("the project has sessions; delete them first")]
    ProjectNotEmpty,
    /// Finish the revert, or take it back.
    #[error("the last revert did not finish; revert again, or take it back")]
    RevertUnfinished,
    /// Read the session again: another loop took over.
    #[error("another worker took over the session")]
    EpochStale,
    /// Nothing to release.
    #[error("the session is not quarantined")]
    NotQuarantined,
    /// Nothing to stop.
    #[error("the session is idle or already quarantined")]
    NotActive,
    /// Too late: another person answered first.
    #[error("{} was already resolved by {by}, {ago_s} s ago", id.as_str())]
    AlreadyResolved { id: request::Id, by: String, ago_s: i64 },
    /// Subscribe without a cursor.
    #[error(
        "{sessions} sessions changed since the cursor, the limit is {limit}; read what you need again and subscribe without a \
         cursor"
    )]
    CursorTooOld { sessions: usize, limit: usize },
    /// Fork a session with fewer files.
    #[error("the files and their history are larger than {0} bytes")]
    ForkTooLarge(u64),
    /// Fork a session at an earlier message.
    #[error("the history to copy is larger than {0} bytes; fork at an earlier message")]
    HistoryTooLarge(usize),

    /// Read pages.
    #[error("the answer is larger than {0} bytes; read the messages page by page")]
    AnswerTooLarge(usize),

    /// Start again from the source of the session.
    #[error(
        "the sandbox machine lost the files of this session; `flotilla restart-workspace` continues with the files that it began \
         with"
    )]
    WorkspaceLost,
    /// The sandbox refused the call.
    #[error("{}", .0.message)]
    Sandbox(Refusal),
    /// Check out the changes instead.
    #[error(
        "the files of this session came from no repository with a URL, so there is no place to push to; `flotilla checkout` puts the changes on a branch of yours. Sessions of a clone with a remote `origin`, and those that begin with `flotilla run --repo URL`, can be pushed"
    )]
    PushSourceMissing,
    /// Add a rule to the settings.
    #[error(
        "no entry of environment.git.push in the settings covers {0}; add one with a secret that may push, or use `flotilla checkout`"
    )]
    PushNotConfigured(String),
    /// The broker, or the server of the repository, refused the push.
    #[error("{}", .0.message)]
    Push(PushRefusal),
    /// The forge, or the broker in its place, refused the call.
    #[error("{}", .0.message)]
    Forge(ForgeRefusal),
    /// Ask the other tenant, or the operator.
    #[error("another tenant has this installation of the App")]
    InstallationTaken,
    /// The sandbox did not finish in time: try again.
    #[error("the revert timed out; try again")]
    RevertTimedOut,
    /// Try again with the same idempotency key.
    #[error("cannot reach the database; try again with the same idempotency key")]
    StoreUnavailable,
    /// Resume at another gateway.
    #[error("this gateway is stopping; resume with the last cursor")]
    GatewayStopping,
    /// Try again at another gateway.
    #[error("this gateway stopped; try again")]
    GatewayStopped,
    /// Resume the stream.
    #[error("the event connection is closed; resume with the last cursor")]
    BusUnavailable,
    /// Try again.
    #[error("cannot store or redeem a ticket; try again")]
    TicketsUnavailable,
    /// Try again: no conversion could run. It has the code of the conversion.
    #[error("cannot check the answer schema; try again")]
    ConverterUnavailable(ErrorCode),

    /// Ask the operator: a row was written by another version.
    #[error("a stored row was written by a newer version of Flotilla")]
    RowUnreadable,
    /// Ask the operator: settings were stored by another version.
    #[error("cannot read the stored settings: {0}")]
    SettingsUnreadable(String),
    /// Try again later.
    #[error("{0}")]
    BrokerUnavailable(&'static str),
    /// Ask the operator.
    #[error("the broker refused the call; see the gateway's log")]
    BrokerFailed,
    /// Ask the operator.
    #[error("the database refused a query; see the gateway's log")]
    StoreFailed,
}

impl Error {
    /// The stable code, as it is spelled.
    pub(crate) fn code(&self) -> &str {
        self.meaning().0
    }

    /// The meaning of the error for the caller.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.meaning().1
    }

    fn meaning(&self) -> (&str, ErrorKind) {
        let code = match self {
            // The other services do not say of these that the call has a mistake.
            Self::Invalid { mistake, .. } => return (mistake.code().as_str(), ErrorKind::Invalid),
            Self::Sandbox(refusal) => return (&refusal.spelling, refusal.kind),
            Self::Push(refusal) => return (&refusal.code, refusal.kind),
            Self::Forge(refusal) => return (&refusal.code, refusal.kind),
            Self::NotFound(entity) => entity.code(),
            Self::KeyMissing => ErrorCode::KeyMissing,
            Self::KeyUnknown => ErrorCode::KeyUnknown,
            Self::TooManyAttempts { .. } => ErrorCode::TooManyAttempts,
            Self::ScopeMissing(_) => ErrorCode::ScopeMissing,
            Self::OperatorOnly(_) => ErrorCode::OperatorOnly,
            Self::OriginForbidden => ErrorCode::OriginForbidden,
            Self::TerminalForbidden(_) => ErrorCode::PtyForbidden,
            Self::IdempotencyConflict => ErrorCode::IdempotencyConflict,
            Self::SessionDeleted => ErrorCode::SessionDeleted,
            Self::RequestsTooMany => ErrorCode::RequestsTooMany,
            Self::StreamsTooMany => ErrorCode::StreamsTooMany,
            Self::QuotaFull(level) => ErrorCode::of_quota(level.resource),
            Self::SecretsTooMany => ErrorCode::SecretsTooMany,
            Self::SessionFull(_) | Self::PromptsTooLarge { .. } => ErrorCode::SessionFull,
            Self::Quarantined => ErrorCode::SessionQuarantined,
            Self::Busy => ErrorCode::SessionBusy,
            Self::ProjectNotEmpty => ErrorCode::ProjectNotEmpty,
            Self::RevertUnfinished => ErrorCode::RevertUnfinished,
            Self::EpochStale => ErrorCode::EpochStale,
            Self::NotQuarantined => ErrorCode::NotQuarantined,
            Self::NotActive => ErrorCode::NotActive,
            Self::AlreadyResolved { .. } => ErrorCode::AlreadyResolved,
            Self::CursorTooOld { .. } => ErrorCode::CursorTooOld,
            Self::ForkTooLarge(_) => ErrorCode::BundleTooLarge,
            Self::HistoryTooLarge(_) | Self::AnswerTooLarge(_) => ErrorCode::HistoryTooLarge,
            Self::WorkspaceLost => ErrorCode::WorkspaceLost,
            Self::PushSourceMissing => ErrorCode::PushSourceMissing,
            Self::PushNotConfigured(_) => ErrorCode::PushNotConfigured,
            Self::InstallationTaken => ErrorCode::InstallationTaken,
            Self::RevertTimedOut => ErrorCode::SandboxUnavailable,
            Self::StoreUnavailable => ErrorCode::StoreUnavailable,
            Self::BrokerUnavailable(_) => ErrorCode::BrokerUnavailable,
            Self::BrokerFailed => ErrorCode::BrokerFailed,
            Self::ConverterUnavailable(code) => *code,
            Self::GatewayStopping => ErrorCode::GatewayStopping,
            Self::GatewayStopped => ErrorCode::GatewayStopped,
            Self::BusUnavailable => ErrorCode::BusUnavailable,
            Self::TicketsUnavailable => ErrorCode::TicketsUnavailable,
            Self::RowUnreadable => ErrorCode::RowUnreadable,
            Self::SettingsUnreadable(_) => ErrorCode::SettingsUnreadable,
            Self::StoreFailed => ErrorCode::StoreFailed,
        };
        (code.as_str(), code.kind())
    }
}

impl Error {
    /// Tells lost files apart from files that were never opened, for a session whose files were opened before or not.
    pub(crate) fn about_files(self, has_workspace: bool) -> Self {
        match self {
            Self::Sandbox(refusal) if has_workspace && refusal.code == Some(ErrorCode::WorkspaceMissing) => {
                Self::WorkspaceLost
            }
            other => other,
        }
    }
}

impl Invalid {
    /// The error for this mistake. The message names the mistake and its correction.
    pub(crate) fn because(self, message: impl Into<String>) -> Error {
        Error::Invalid { mistake: self, message: message.into() }
    }
}

impl From<shares::Busy> for Error {
    /// The caller cannot tell who holds the permits, and would do the same in both cases.
    fn from(busy: shares::Busy) -> Self {
        match busy {
            shares::Busy::Own | shares::Busy::All => Self::RequestsTooMany,
        }
    }
}

impl From<store::error::Error> for Error {
    /// Converts the store's error to its meaning for a caller. The cause is in the log.
    fn from(failure: store::error::Error) -> Self {
        use store::error::Error as Store;
        let is_transient = failure.is_transient();
        let error = &failure as &dyn std::error::Error;
        match failure {
            Store::NotFound(entity) => Self::NotFound(entity.into()),
            Store::Conflict => Self::IdempotencyConflict,
            Store::Deleted => Self::SessionDeleted,
            Store::TooManySecrets(_) => Self::SecretsTooMany,
            Store::TooManyInputs(count) => Self::SessionFull(count),
            Store::HistoryTooLarge(limit) => Self::HistoryTooLarge(limit),
            Store::PromptsTooLarge { stored_bytes, limit_bytes } => {
                Self::PromptsTooLarge { stored_bytes, limit_bytes }
            }
            Store::Quarantined => Self::Quarantined,
            Store::Busy => Self::Busy,
            Store::RevertUnfinished => Self::RevertUnfinished,
            Store::Fenced => Self::EpochStale,
            Store::Unreadable { .. } => {
                tracing::error!(error, "cannot read a row that another version wrote");
                Self::RowUnreadable
            }
            Store::Db(_) | Store::Migrate(_) if is_transient => {
                tracing::warn!(error, "cannot reach Postgres");
                Self::StoreUnavailable
            }
            Store::Db(_) | Store::Migrate(_) => {
                tracing::error!(error, "a query failed");
                Self::StoreFailed
            }
        }
    }
}

impl From<tonic::Status> for Error {
    /// Converts the sandbox's status to its meaning for a caller. Calls of the
    /// broker convert their own.
    fn from(status: tonic::Status) -> Self {
        Self::Sandbox(status.into())
    }
}
