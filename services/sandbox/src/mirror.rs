//! Mirrors: what the machine keeps of the repositories of servers, one for each project and URL, so that a later session of the project copies the
//! objects from this disk. A session gets nothing of a mirror before the server has answered git with the session's own credential.
//!
//! A mirror is data and never changes: `generation` is one on the disk. `content` is what a clone reports that a next generation can be made of,
//! `objects` are those of Git LFS, and `next_generation` is one while it is written; `writes` lets one at a time be made. `arrivals` are objects that a session is bringing, for those that open meanwhile. `ledger` counts the
//! mirrors and knows which of them make room, and `store` is all of it. Only the service
//! writes mirrors, from files of a helper that has ended, and only helpers that clone or fill files of Git LFS see them.

pub mod arrivals;
pub mod content;
mod file;
pub mod generation;
pub mod key;
mod ledger;
mod next_generation;
mod objects;
pub mod store;
mod writes;
