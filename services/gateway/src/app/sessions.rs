//! Sessions: creating, reading, changing, aborting and deleting them; their waits, their output, their pushes and their use of the network.

pub(crate) mod abort;
pub(crate) mod budget;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod egress;
pub(crate) mod output;
pub(crate) mod push;
pub(crate) mod read;
pub(crate) mod waits;
