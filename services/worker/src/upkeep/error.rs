//! Why a round of the upkeep ended early.

use tonic::Status;

/// The next round tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Postgres failed or is down.
    #[error("cannot change what is stored")]
    Store(#[from] store::error::Error),
    /// The sandbox failed or is down.
    #[error("cannot read what the sandbox has")]
    Sandbox(#[source] Status),
}

impl Error {
    /// Whether the other side is only away.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Sandbox(status) => crate::process::sandbox::is_away(status),
        }
    }
}
