//! What can go wrong, by what the caller can do about it.

/// What a call names and the tenant does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// The tenant itself.
    Tenant,
    /// An API key.
    Key,
    /// A project.
    Project,
    /// An uploaded bundle.
    Bundle,
    /// A session.
    Session,
    /// A message of a session.
    Message,
    /// A part of a message.
    Part,
    /// A permission request or a question.
    Request,
}

impl Entity {
    /// Its name in error texts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Project => "project",
            Self::Bundle => "bundle",
            Self::Session => "session",
            Self::Message => "message",
            Self::Part => "part",
            Self::Request => "request",
        }
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tenant has no such row.
    #[error("{} not found", .0.as_str())]
    NotFound(Entity),
    /// The same idempotency key came with another body.
    #[error("the idempotency key was used before with another body")]
    Conflict,
    /// The session has too many inputs that no loop has taken.
    #[error("the session has {0} prompts that wait; let it work first")]
    TooManyInputs(i64),
    /// Nobody takes the session before an operator releases it.
    #[error("the session is quarantined: nothing of it runs before an operator releases it")]
    Quarantined,
    /// Something of the session's tree works, or its files are being changed.
    #[error("the session is busy: wait until it and its subtasks are idle, or abort it")]
    Busy,
    /// Files may be half reverted: end that first.
    #[error("the files of the session are not reverted yet: revert it again, or take that back")]
    RevertUnfinished,
    /// Another worker owns the session: stop writing and start nothing.
    #[error("another worker took the session over")]
    Fenced,
    /// A row that this version cannot read: leave it to a newer one.
    #[error("read a stored {what}")]
    Unreadable {
        /// Which kind of row.
        what: &'static str,
        /// What does not fit.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Postgres failed or is not there. After a failed commit the change may or may not be stored.
    #[error("ask Postgres")]
    Db(#[from] sqlx::Error),
    /// A migration failed.
    #[error("migrate the database")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl Error {
    /// Postgres did not answer in time: the change may or may not be stored.
    pub fn timed_out() -> Self {
        Self::Db(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
    }

    pub(crate) fn unreadable(
        what: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Unreadable { what, source: Box::new(source) }
    }

    /// Whether the same call may succeed soon: the connection failed, not the query.
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
            | Self::TooManyInputs(_)
            | Self::Quarantined
            | Self::Busy
            | Self::RevertUnfinished
            | Self::Fenced
            | Self::Unreadable { .. }
            | Self::Migrate(_) => false,
        }
    }
}
