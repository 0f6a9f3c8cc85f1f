//! The workspace of a session: a git checkout that belongs to the session's user. All git runs in one-shot helper
//! sandboxes, because the tenant controls the files and the git configuration among them.

pub mod branch;
pub mod changes;
pub mod close;
pub mod configuration;
mod door;
pub mod install;
pub mod install_run;
mod large;
pub mod open;
mod scratch;
pub mod snapshots;
