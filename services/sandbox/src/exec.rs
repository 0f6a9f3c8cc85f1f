//! Execs: the commands that a session runs.
//!
//! An exec belongs to its session, not to the call that started it. It continues when the caller disconnects, and a
//! later call reads its output from the disk by its id. An exec that a restart of the service interrupted is `LOST`.
//!
//! `variables` are those of every program, and `tail` keeps the end of an output.

pub mod attach;
pub mod boot;
pub mod kill;
pub mod record;
pub mod recorder;
pub mod registry;
pub mod tail;
pub mod variables;
