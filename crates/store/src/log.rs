//! The log of a session: the fenced writes of its loop, the projection of changes into tables, and the readers of events,
//! messages and parts.

pub mod change;
pub mod chunks;
pub(crate) mod control;
pub mod edits;
pub mod events;
pub mod feed;
pub mod messages;
pub mod outline;
pub(crate) mod parts;
pub(crate) mod projection;
pub mod record;
pub(crate) mod removal;
