//! A session's stream: reading it to its end, and its items.

pub(crate) mod follow;
pub(crate) mod item;
