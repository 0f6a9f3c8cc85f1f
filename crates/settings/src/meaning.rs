//! What a tree of values means.

pub(crate) mod providers;
pub(crate) mod reader;
mod rules;
pub(crate) mod settings;
