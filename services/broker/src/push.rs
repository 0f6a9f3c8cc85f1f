//! Pushes what a session has made to the repository that its files came from. Sessions push nothing by themselves: a gateway calls for a person.
//!
//! The commits come as a bundle. They stay in a directory of this one push until git has checked each object and this module each
//! commit. Every git there runs behind the walls of `flotilla-git`, without network and without the credential. The broker itself speaks git's
//! protocol with the server, and sends one command that creates a branch or moves it forward. So the credential is in no process but the broker.

pub mod directories;
pub mod error;
pub mod problem;
pub mod pusher;

pub(crate) mod commits;
pub(crate) mod request;

mod audit;
mod bundle;
mod git;
mod objects;
mod order;
mod plan;
mod preparation;
mod remote;
mod repository;
