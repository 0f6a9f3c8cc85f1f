//! What became of one connection, for the audit.

use super::refusal::Refusal;
use domain::egress::host::HostName;
use std::time::Duration;

/// The record of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `None`: the request named none.
    pub host: Option<HostName>,
    /// Bytes to the host and from it.
    pub bytes: u64,
    /// From the request to the end.
    pub duration: Duration,
    /// `None`: it went through and ended.
    pub refusal: Option<Refusal>,
}
