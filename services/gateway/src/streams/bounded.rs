//! Channels between streams, and reads for them, that hold little memory for a slow reader.

pub(crate) mod deltas;
pub(crate) mod pages;
pub(crate) mod queue;
pub(crate) mod ring;
