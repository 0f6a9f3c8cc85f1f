//! The disk that all workspaces share. `space` is an amount of it, `host` what the machine has left. `survey` measures one
//! workspace: `walk` its tree, `nameless` its open files without a name and `mapped` those that are only mapped, into a `count`. `workspace` knows whether
//! one is full, and `watch` measures those in which programs run. A `fingerprint` tells whether the files of one have changed. `shared_space` decides which layers
//! and mirrors make room for others, so that no tenant has it all.
//!
//! The service measures from outside, so nothing inside can hide from it or end it: it opens directories whatever their mode
//! is, never by a path that can be too long, and it sees deleted files that are still open or mapped. It cannot see a file that exists
//! only as a message in a socket between two processes of the sandbox.

pub mod count;
pub mod fingerprint;
pub mod host;
mod mapped;
mod nameless;
pub mod shared_space;
pub mod space;
pub mod survey;
pub mod walk;
pub mod watch;
pub mod workspace;
