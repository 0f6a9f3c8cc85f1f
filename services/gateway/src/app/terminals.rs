//! Terminals of sessions, and the tickets by which pages connect to them.

pub(crate) mod host;
pub(crate) mod terminal;
pub(crate) mod tickets;
