//! The conversation of a session: read, edited, reverted and forked.

mod copy;
pub(crate) mod edits;
mod files;
pub(crate) mod fork;
pub(crate) mod messages;
mod point;
pub(crate) mod revert;
