//! Channels between streams that hold little memory for a slow reader.

pub(crate) mod queue;
pub(crate) mod ring;
