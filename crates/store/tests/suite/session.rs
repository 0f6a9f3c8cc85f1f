//! Sessions: creation, takeover, parking, trees, reverts.

mod aborts;
mod budget;
mod children;
mod deletion;
mod forks;
mod inputs;
mod park;
mod quarantine;
pub(crate) mod reverts;
mod runs;
mod sessions;
mod tree;
