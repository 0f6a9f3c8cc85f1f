//! The meaning of a tree of values.

mod claude;
mod environment;
pub(crate) mod modes;
pub(crate) mod providers;
pub(crate) mod reader;
pub(crate) mod rules;
pub(crate) mod settings;
