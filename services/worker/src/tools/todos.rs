//! The tools for the session's list of things to do.

pub(crate) mod todoread;
pub(crate) mod todowrite;
