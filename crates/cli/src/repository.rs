//! The user's git repository: what travels from it and back.

pub(crate) mod bundle;
pub(crate) mod git;
