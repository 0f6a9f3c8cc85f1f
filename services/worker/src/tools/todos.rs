//! The tools for the session's todo list.

pub(crate) mod todoread;
pub(crate) mod todowrite;
