//! The errors of the sandbox service and how they look to a caller.

use rpc::v1::ErrorCode;
use std::io;
use tokio::task::JoinError;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller gets `code` and `message`.
    #[error("{message}")]
    Refused {
        code: ErrorCode,
        /// One or two sentences for a person or a model.
        message: String,
    },
    /// A caller with a higher epoch was here.
    #[error("epoch {epoch} of the session was taken over by epoch {highest}")]
    Stale {
        /// The epoch of the caller.
        epoch: u64,
        /// The highest epoch seen.
        highest: u64,
    },
    /// The machine failed; the caller gets only `internal`.
    #[error("{doing}")]
    Io {
        /// The operation that failed: verb and object.
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// An error that the caller sees.
    pub fn refused(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }

    /// Returns a function that wraps an IO error; `doing` is verb and object.
    pub fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Stale { .. } => ErrorCode::EpochStale,
            Self::Io { .. } => ErrorCode::Internal,
        }
    }

    /// Its text and those of its causes, for the log.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    /// The status that the caller gets. The cause stays in the log.
    pub fn to_status(&self) -> tonic::Status {
        match self {
            Self::Refused { code, message } => rpc::status::error(*code, message),
            Self::Stale { highest, .. } => rpc::status::stale(self.to_string(), *highest),
            Self::Io { doing, .. } => {
                rpc::status::error(ErrorCode::Internal, format!("the sandbox service failed to {doing}"))
            }
        }
    }
}

/// Runs file system work on a thread that may block. `doing` names the work in its error: verb and object.
///
/// # Errors
/// Those of the work; also if it panicked.
///
/// Dropped midway: the work goes on.
pub async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Error::io(doing))
}

/// Runs blocking work of a loop. If the work panics, the caller panics too, and its loop begins again. `None`: the runtime is stopping.
pub(crate) async fn blocking_in_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => Some(done),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}
