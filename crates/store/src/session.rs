//! Sessions and their life cycle: their mailbox, taking and freeing them, trees, forks, reverts.
//! `rows` has the two rows of a session, `log` its events and messages, and `people` the answers of people.

pub mod aborts;
pub mod creation;
pub mod deletion;
pub mod forks;
pub mod inputs;
pub mod mailbox;
pub mod park;
pub mod quarantine;
pub mod reverts;
pub mod runs;
pub mod sessions;
pub mod tree;
