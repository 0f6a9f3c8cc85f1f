//! Why a door to the network refuses or fails.

use super::{git::rules::GitRulesError, page_error::PageError};
use domain::{egress::allow::AllowListError, secret::SecretNameError};
use rpc::v1::ErrorCode;
use std::io;
use store::error::Error as StoreError;

/// Why a call about a door failed.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// A field of the call is wrong.
    #[error("{0}")]
    ArgumentInvalid(&'static str),
    /// The name of the secret is wrong.
    #[error(transparent)]
    Name(#[from] SecretNameError),
    /// A list of hosts is wrong.
    #[error(transparent)]
    AllowList(#[from] AllowListError),
    /// The rules for git are wrong.
    #[error(transparent)]
    GitRules(#[from] GitRulesError),
    /// The session has no open door.
    #[error("the network of this session is closed: its next prompt opens it")]
    DoorClosed,
    /// Programs of the session may run already.
    #[error(
        "the files of this session are open, so its door takes no rules for a clone, a setup or an install"
    )]
    DoorSealed,
    /// Another worker has taken the session over.
    #[error("a later loop of this session has set what its door allows")]
    EpochStale,
    /// There are too many doors.
    #[error("this broker has as many doors to the network as it can have")]
    TooManyDoors,
    /// The socket of a door cannot be made.
    #[error("the door to the network cannot be opened")]
    Door(#[source] io::Error),
    /// The page cannot be read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// What a session reached cannot be stored.
    #[error("the network use of this session cannot be stored")]
    Journal(#[source] StoreError),
}

impl EgressError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ArgumentInvalid(_) => ErrorCode::ArgumentInvalid,
            Self::Name(_) => ErrorCode::SecretNameInvalid,
            Self::AllowList(_) => ErrorCode::EgressListInvalid,
            Self::GitRules(error) => error.code(),
            Self::DoorClosed => ErrorCode::EgressUnavailable,
            Self::DoorSealed => ErrorCode::EgressSealed,
            Self::EpochStale => ErrorCode::EpochStale,
            Self::TooManyDoors => ErrorCode::EgressDoorsTooMany,
            Self::Door(_) => ErrorCode::Internal,
            Self::Page(error) => error.code(),
            Self::Journal(error) if error.is_transient() => ErrorCode::StoreUnavailable,
            Self::Journal(_) => ErrorCode::Internal,
        }
    }
}
