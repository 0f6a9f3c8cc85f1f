//! Git LFS inside: `client` asks the door, `objects` brings objects through it, from the mirror, or from another session (`arrivals`), `fill` puts them in place of their pointers, and `record` says
//! which files have none.

mod arrivals;
mod client;
pub(crate) mod fill;
mod objects;
pub(crate) mod record;
