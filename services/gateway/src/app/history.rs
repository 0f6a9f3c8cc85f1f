//! The conversation of a session: reading, editing, reverting and forking it.

mod copy;
pub(crate) mod edits;
mod files;
pub(crate) mod fork;
pub(crate) mod messages;
mod point;
pub(crate) mod restart;
pub(crate) mod revert;
