//! Sessions: creating, reading, changing, aborting and deleting them; their waits, their output, their pushes, their use
//! of the network, the notes in them, and waking them.

pub(crate) mod abort;
pub(crate) mod budget;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod egress;
pub(in crate::app) mod note;
pub(crate) mod output;
pub(crate) mod push;
pub(crate) mod read;
pub(crate) mod waits;
pub(in crate::app) mod wake;
