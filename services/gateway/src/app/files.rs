//! The files of a directory, for clients that do not name a session: those of the session that a client works with, else of the newest one.

pub(crate) mod directory;
pub(crate) mod visits;
pub(crate) mod workspace;
