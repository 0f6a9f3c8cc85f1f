//! Sessions and their life cycle: their two rows, their mailbox, taking and freeing them, trees, forks, reverts.
//! `log` holds the events and messages of a session, `people` the answers of people.

pub mod aborts;
pub(crate) mod control_row;
pub mod creation;
pub mod deletion;
pub mod forks;
pub mod inputs;
pub mod mailbox;
pub mod park;
pub mod quarantine;
pub(crate) mod removal;
pub mod reverts;
pub mod row;
pub mod runs;
pub mod sessions;
pub mod tree;
