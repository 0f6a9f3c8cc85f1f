//! Git LFS inside: `client` asks the door, `objects` reads objects through it, `fill` puts them in place of their pointers, and `record` says which files have
//! none.

mod client;
pub(crate) mod fill;
mod objects;
pub(crate) mod record;
