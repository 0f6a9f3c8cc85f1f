//! The meaning of a tree of values.

mod environment;
pub(crate) mod providers;
pub(crate) mod reader;
mod rules;
pub(crate) mod settings;
