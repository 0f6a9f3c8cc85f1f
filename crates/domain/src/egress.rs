//! What a session may reach of the network: names of hosts, the lists of settings that allow them, and the git repositories for which settings name a
//! credential, with their objects of Git LFS. And where people may push what a session has made, how a setup gets its secrets, and how programs say that they have no network.

pub mod allow;
pub mod git;
pub mod host;
pub mod lfs;
pub mod no_network;
pub mod push;
pub mod secrets;

use crate::ids::Timestamp;

/// Connections of a session to one host with one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressAccess {
    /// When the first of them began.
    pub began_at: Timestamp,
    /// Empty: the requests named none.
    pub host: String,
    /// The code of the refusal; empty: they went through.
    pub code: String,
    /// How many.
    pub connections: u64,
    /// Bytes to the host and from it.
    pub bytes: u64,
}
