//! The files of a directory, for clients that know no session: those of its newest session.

pub(crate) mod directory;
pub(crate) mod workspace;
