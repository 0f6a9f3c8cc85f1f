//! Why a call fails: one type for the whole gateway. A protocol shows its code and its sentence; the cause stays in the log.

use super::{
    entity::Entity,
    invalid::Invalid,
    kind::Kind,
    scope::Scope,
    services::{push::PushRefusal, sandbox},
};
use domain::{conversation::request, policy::quota::Level};
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
    Sandbox(sandbox::Refusal),
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
    ConverterUnavailable(&'static str),

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
    /// The stable code.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Invalid { mistake, .. } => mistake.code(),
            Self::NotFound(entity) => entity.code(),
            Self::KeyMissing => "key_missing",
            Self::KeyUnknown => "key_unknown",
            Self::TooManyAttempts { .. } => "too_many_attempts",
            Self::ScopeMissing(_) => "scope_missing",
            Self::OperatorOnly(_) => "operator_only",
            Self::OriginForbidden => "origin_forbidden",
            Self::TerminalForbidden(_) => "pty_forbidden",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::SessionDeleted => "session_deleted",
            Self::RequestsTooMany => "requests_too_many",
            Self::StreamsTooMany => "streams_too_many",
            Self::QuotaFull(level) => level.resource.refusal_code(),
            Self::SecretsTooMany => "secrets_too_many",
            Self::SessionFull(_) | Self::PromptsTooLarge { .. } => "session_full",
            Self::Quarantined => "session_quarantined",
            Self::Busy => "session_busy",
            Self::ProjectNotEmpty => "project_not_empty",
            Self::RevertUnfinished => "revert_unfinished",
            Self::EpochStale => "epoch_stale",
            Self::NotQuarantined => "not_quarantined",
            Self::NotActive => "not_active",
            Self::AlreadyResolved { .. } => "already_resolved",
            Self::CursorTooOld { .. } => "cursor_too_old",
            Self::ForkTooLarge(_) => "bundle_too_large",
            Self::HistoryTooLarge(_) | Self::AnswerTooLarge(_) => "history_too_large",
            Self::WorkspaceLost => "workspace_lost",
            Self::Sandbox(refusal) => refusal.reason.code(),
            Self::PushSourceMissing => "push_source_missing",
            Self::PushNotConfigured(_) => "push_not_configured",
            Self::Push(refusal) => &refusal.code,
            Self::RevertTimedOut => "sandbox_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::BrokerUnavailable(_) => "broker_unavailable",
            Self::BrokerFailed => "broker_failed",
            Self::ConverterUnavailable(code) => code,
            Self::GatewayStopping => "gateway_stopping",
            Self::GatewayStopped => "gateway_stopped",
            Self::BusUnavailable => "bus_unavailable",
            Self::TicketsUnavailable => "tickets_unavailable",
            Self::RowUnreadable => "row_unreadable",
            Self::SettingsUnreadable(_) => "settings_unreadable",
            Self::StoreFailed => "store_failed",
        }
    }

    /// The meaning of the error for the caller.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } => Kind::Invalid,
            Self::NotFound(_) => Kind::NotFound,
            Self::KeyMissing | Self::KeyUnknown => Kind::Unauthenticated,
            Self::ScopeMissing(_)
            | Self::OperatorOnly(_)
            | Self::OriginForbidden
            | Self::TerminalForbidden(_) => Kind::Forbidden,
            Self::IdempotencyConflict | Self::SessionDeleted => Kind::AlreadyExists,
            Self::TooManyAttempts { .. }
            | Self::RequestsTooMany
            | Self::StreamsTooMany
            | Self::QuotaFull(_)
            | Self::SecretsTooMany
            | Self::SessionFull(_)
            | Self::PromptsTooLarge { .. }
            | Self::ForkTooLarge(_)
            | Self::HistoryTooLarge(_)
            | Self::AnswerTooLarge(_) => Kind::Exhausted,
            Self::Quarantined
            | Self::Busy
            | Self::ProjectNotEmpty
            | Self::RevertUnfinished
            | Self::EpochStale
            | Self::NotQuarantined
            | Self::NotActive
            | Self::WorkspaceLost
            | Self::PushSourceMissing
            | Self::PushNotConfigured(_)
            | Self::AlreadyResolved { .. } => Kind::Precondition,
            Self::CursorTooOld { .. } => Kind::OutOfRange,
            Self::Sandbox(refusal) => refusal.kind,
            Self::Push(refusal) => refusal.kind,
            Self::RevertTimedOut
            | Self::StoreUnavailable
            | Self::BrokerUnavailable(_)
            | Self::GatewayStopping
            | Self::GatewayStopped
            | Self::BusUnavailable
            | Self::TicketsUnavailable
            | Self::ConverterUnavailable(_) => Kind::Unavailable,
            Self::RowUnreadable | Self::SettingsUnreadable(_) | Self::StoreFailed | Self::BrokerFailed => {
                Kind::Internal
            }
        }
    }
}

impl Error {
    /// Tells lost files apart from files that were never opened, for a session whose files were opened before or not.
    pub(crate) fn about_files(self, has_workspace: bool) -> Self {
        match self {
            Self::Sandbox(refusal)
                if has_workspace && refusal.reason == sandbox::Reason::WorkspaceMissing =>
            {
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
    /// The caller cannot tell who holds the shares, and would do the same in both cases.
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
