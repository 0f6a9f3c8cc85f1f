//! Why a call to the forge was refused, as the broker says it.

use super::refusal::kind;
use rpc::v1::ErrorKind;
use std::time::Duration;
use tonic::Status;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForgeRefusal {
    pub(crate) code: String,
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// When the next call may come, if the forge limits the App.
    pub(crate) retry_after: Option<Duration>,
}

impl ForgeRefusal {
    /// The refusal in a status of the broker.
    pub(crate) fn new(code: String, status: &Status) -> Self {
        let (message, retry_after) = (status.message().to_owned(), rpc::status::retry_after_of(status));
        Self { code, kind: kind(status.code()), message, retry_after }
    }
}
