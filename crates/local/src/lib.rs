//! The embedded default: private Postgres, Redis and NATS as child processes in one data directory.
//! It never touches a system instance, and its servers end with their launcher.

pub mod error;
pub mod lock;
pub mod log;
pub mod options;
pub mod process;
pub mod programs;
pub mod shared;
pub mod stack;

mod home;
mod plan;
mod probe;

#[cfg(test)]
mod tests;
