//! The files of a directory, for clients that do not name a session: those of its newest session.

pub(crate) mod directory;
pub(crate) mod workspace;
