//! The tools that reach the network, or ask for it.

pub(crate) mod network;
pub(crate) mod webfetch;
