//! The errors of the store, one variant for each action that a caller can take.

/// A kind of row that a call can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    Tenant,
    Key,
    Project,
    Secret,
    Bundle,
    Session,
    /// A message of a session.
    Message,
    /// A part of a message.
    Part,
    /// A permission request or a question.
    Request,
    /// An environment that a repository proposes.
    ProposedEnvironment,
}

impl Entity {
    /// Its name in error texts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Project => "project",
            Self::Secret => "secret",
            Self::Bundle => "bundle",
            Self::Session => "session",
            Self::Message => "message",
            Self::Part => "part",
            Self::Request => "request",
            Self::ProposedEnvironment => "environment",
        }
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tenant has no such row.
    #[error("{} not found", .0.as_str())]
    NotFound(Entity),
    /// The idempotency key was already used with a different body.
    #[error("the idempotency key was already used with a different body")]
    Conflict,
    /// A session of this id was deleted, and its tombstone still exists.
    #[error("a session with this id was deleted; choose another id")]
    Deleted,
    /// The session has too many inputs that no loop has taken yet.
    #[error("the session has {0} pending prompts; wait until it has worked on some of them")]
    TooManyInputs(i64),
    /// The tenant has as many secrets as it may have.
    #[error("the tenant has {0} secrets, the limit; remove those that are not needed")]
    TooManySecrets(i64),
    /// The prompts and notes since the newest summary are too large to load at once.
    #[error(
        "the prompts and notes since the last summary have {stored_bytes} bytes, the limit is {limit_bytes}; summarize the session first, \
         or start another one"
    )]
    PromptsTooLarge {
        /// Bytes of the stored ones.
        stored_bytes: u64,
        limit_bytes: u64,
    },
    /// The messages to copy have too many bytes.
    #[error("the history to copy is larger than {0} bytes; fork at an earlier message")]
    HistoryTooLarge(usize),
    /// An operator must release the session before a worker takes it.
    #[error("the session is quarantined; an operator must release it first")]
    Quarantined,
    /// A session of the tree is working, or a revert is changing its files.
    #[error("the session is busy; wait until it and its subtasks are idle, or abort it")]
    Busy,
    /// The files may be half reverted: finish the revert first.
    #[error("a revert of the session is unfinished; revert again, or undo the revert")]
    RevertUnfinished,
    /// Another worker owns the session: stop writing and start nothing.
    #[error("another worker took over the session")]
    Fenced,
    /// A row that this version cannot read: leave it to a newer one.
    #[error("cannot read a stored {what}")]
    Unreadable {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Postgres failed or is down. After a failed commit the change may or may not be stored.
    #[error("cannot query Postgres")]
    Db(#[from] sqlx::Error),
    #[error("cannot migrate the database")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl Error {
    /// Returns the error for a response from Postgres that came too late. The change may or may not be stored.
    pub fn timed_out() -> Self {
        Self::Db(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
    }

    pub(crate) fn unreadable(
        what: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Unreadable { what, source: Box::new(source) }
    }

    /// Whether the same call may succeed soon, because the connection failed and not the query.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Db(error) => match error {
                sqlx::Error::Io(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::BeginFailed
                | sqlx::Error::Protocol(_)
                | sqlx::Error::Tls(_) => true,
                // 08: connection, 40: serialization and deadlock, 53: resources, 57: operator, 25P03: idle too long.
                sqlx::Error::Database(db) => db.code().is_some_and(|code| {
                    ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class)) || code == "25P03"
                }),
                _ => false,
            },
            Self::NotFound(_)
            | Self::Conflict
            | Self::Deleted
            | Self::TooManyInputs(_)
            | Self::TooManySecrets(_)
            | Self::PromptsTooLarge { .. }
            | Self::HistoryTooLarge(_)
            | Self::Quarantined
            | Self::Busy
            | Self::RevertUnfinished
            | Self::Fenced
            | Self::Unreadable { .. }
            | Self::Migrate(_) => false,
        }
    }
}
