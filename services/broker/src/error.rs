//! The errors of calls, each with a stable code.

use crate::{
    egress::error::EgressError,
    forge::error::ForgeError,
    images::{error::ImageError, puller::PullError},
    push::error::PushError,
    secrets::vault::VaultError,
};
use rpc::v1::ErrorCode;
use tonic::Status;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The token of the caller is missing or wrong.
    #[error("the token is missing or wrong")]
    TokenInvalid,
    /// The token belongs to a caller that has no business with this call.
    #[error("the token of this caller is not for {0}")]
    CallerNotAllowed(&'static str),
    /// A field of the call is wrong.
    #[error("{0}")]
    ArgumentInvalid(&'static str),
    /// The name of the secret is wrong.
    #[error(transparent)]
    Name(#[from] domain::secret::SecretNameError),
    /// The servers of the secret are wrong.
    #[error(transparent)]
    Servers(#[from] domain::egress::secret_servers::SecretServersError),
    /// This broker has no directory for doors.
    #[error("this broker opens no doors to the network: FLOTILLA_BROKER_EGRESS is not set")]
    NoDoors,
    /// The door of a session cannot do that.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The secret cannot be stored or opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A call about an image is wrong, or its stream ends early.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image cannot be resolved or pulled.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The session cannot be pushed.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The forge does not do it.
    #[error(transparent)]
    Forge(#[from] ForgeError),
}

impl Error {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TokenInvalid => ErrorCode::TokenInvalid,
            Self::CallerNotAllowed(_) => ErrorCode::CallerNotAllowed,
            Self::ArgumentInvalid(_) => ErrorCode::ArgumentInvalid,
            Self::Name(_) => ErrorCode::SecretNameInvalid,
            Self::Servers(_) => ErrorCode::SecretUrlInvalid,
            Self::NoDoors => ErrorCode::EgressUnavailable,
            Self::Egress(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Pull(error) => error.code(),
            Self::Push(error) => error.code(),
            Self::Forge(error) => error.code(),
            Self::Vault(error) => error.code(),
        }
    }

    /// The status that the caller gets. The cause stays in the log.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Forge(ForgeError::Busy(pause)) => {
                rpc::status::exhausted(self.code(), self.to_string(), *pause)
            }
            _ => rpc::status::error(self.code(), self.to_string()),
        }
    }
}
