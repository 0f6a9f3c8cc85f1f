//! Git LFS inside: `client` asks the door, `objects` brings objects through it or from the mirror, `fill` puts them in place of their pointers, and `record` says
//! which files have none.

mod client;
pub(crate) mod fill;
mod objects;
pub(crate) mod record;
