//! Sessions and what happens to them: their two rows, their mailbox, taking and freeing them, children, forks, reverts.
//! What a session says is in `log`, what people answer in `people`.

pub mod aborts;
pub mod budget;
pub mod children;
pub mod deletion;
pub mod forks;
pub mod inputs;
pub mod keyed;
pub mod park;
pub mod quarantine;
pub mod reverts;
pub mod runs;
pub mod sessions;
pub mod titles;
pub mod todos;
