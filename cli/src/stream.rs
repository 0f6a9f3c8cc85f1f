//! A session's stream: reading it to its end, its items, and what the session does meanwhile.

pub(crate) mod activity;
pub(crate) mod follow;
pub(crate) mod item;
pub(crate) mod tool_call;
pub(crate) mod usage;
