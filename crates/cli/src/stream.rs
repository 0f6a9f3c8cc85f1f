//! A session's stream: read to its end, and what it brings.

pub(crate) mod follow;
pub(crate) mod item;
