//! Why a push was refused, as the broker says it.

use super::refusal::kind;
use rpc::v1::ErrorKind;
use tonic::Status;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushRefusal {
    pub(crate) code: String,
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl PushRefusal {
    /// The refusal in a status of the broker.
    pub(crate) fn new(code: String, status: &Status) -> Self {
        Self { code, kind: kind(status.code()), message: status.message().to_owned() }
    }
}
