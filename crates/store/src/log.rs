//! The log of a session: the fenced writes of its loop, its events, messages and parts, and the readers of all of these.

pub mod chunks;
pub mod edits;
pub mod events;
pub(crate) mod execs;
pub mod feed;
pub mod messages;
pub mod record;
