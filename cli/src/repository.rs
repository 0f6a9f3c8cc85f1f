//! The user's git repository: what is sent from it and fetched into it.

pub(crate) mod bundle;
pub(crate) mod git;
pub(crate) mod source;
pub(crate) mod start;
pub(crate) mod status;
