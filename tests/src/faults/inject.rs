//! The faults of a run: which there are, and how each is performed.

mod actions;
pub mod fault;
pub mod injector;
mod nats;
pub mod poison;
pub mod target_locks;
