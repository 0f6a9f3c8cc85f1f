//! Why the forge does not do something.

use crate::{outside::error::NameError, secrets::vault::VaultError};
use rpc::v1::ErrorCode;
use std::time::Duration;
use store::error::Error as StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    #[error(
        "this deployment has no App at a forge; its operator makes one known with `flotilla github setup`"
    )]
    AppMissing,
    /// A URL of the forge is none, or has no TLS.
    #[error("{0} is no URL of a forge: write it with https and without a user or a query")]
    UrlInvalid(String),
    #[error("the private key of the App is no RSA key in PEM")]
    KeyInvalid,
    #[error("the delivery is not signed with the secret of the App")]
    SignatureInvalid,
    #[error("the tenant has no installation {0} of the App")]
    InstallationNotFound(u64),
    /// There is no connection, or no answer.
    #[error("the forge does not answer: {0}")]
    Unreachable(String),
    /// Its answer is an error of its own, or makes no sense.
    #[error("the forge failed: {0}")]
    Failed(String),
    /// It refuses the App, or the App lacks a right.
    #[error("the forge refuses the App: {0}")]
    Unauthorized(String),
    /// It limits the App, or the broker does so in its place.
    #[error("the forge limits the App; the next call may come in {} s", .0.as_secs())]
    Busy(Duration),
    #[error("the forge does not know it, or the App may not see it")]
    NotFound,
    /// It understands the call, and says why it is wrong.
    #[error("the forge refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ForgeError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::AppMissing => ErrorCode::ForgeAppMissing,
            Self::UrlInvalid(_) => ErrorCode::ForgeUrlInvalid,
            Self::KeyInvalid => ErrorCode::ForgeKeyInvalid,
            Self::SignatureInvalid => ErrorCode::SignatureInvalid,
            Self::InstallationNotFound(_) => ErrorCode::InstallationNotFound,
            Self::Unreachable(_) => ErrorCode::ForgeUnreachable,
            Self::Failed(_) => ErrorCode::ForgeFailed,
            Self::Unauthorized(_) => ErrorCode::ForgeUnauthorized,
            Self::Busy(_) => ErrorCode::ForgeBusy,
            Self::NotFound => ErrorCode::ForgeNotFound,
            Self::Refused(_) => ErrorCode::ForgeRefused,
            Self::Vault(error) => error.code(),
            Self::Store(error) if error.is_transient() => ErrorCode::StoreUnavailable,
            Self::Store(_) => ErrorCode::Internal,
        }
    }
}

impl From<NameError> for ForgeError {
    fn from(error: NameError) -> Self {
        Self::Unreachable(error.to_string())
    }
}
