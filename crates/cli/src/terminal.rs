//! Output for people: tables, colours, a stream as text.

pub(crate) mod json;
pub(crate) mod out;
pub(crate) mod paint;
pub(crate) mod render;
pub(crate) mod show;
pub(crate) mod table;
