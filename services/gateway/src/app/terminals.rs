//! Terminals of sessions, and the tickets with which pages connect to them.

pub(crate) mod host;
pub(crate) mod terminal;
pub(crate) mod tickets;
