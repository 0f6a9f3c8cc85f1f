//! Sessions: creating, reading, changing, aborting and deleting them; their waits and their output.

pub(crate) mod abort;
pub(crate) mod budget;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod output;
pub(crate) mod read;
pub(crate) mod waits;
