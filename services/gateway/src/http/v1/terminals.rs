//! Terminals.

pub(in crate::http) mod pty;
mod socket;
