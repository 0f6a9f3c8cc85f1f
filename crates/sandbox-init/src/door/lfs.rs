//! Git LFS inside: `client` reads objects through the door, `fill` puts them in place of their pointers, and `record` says which files have none.

mod client;
pub(crate) mod fill;
pub(crate) mod record;
