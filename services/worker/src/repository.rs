//! The loop's questions to the sandbox about the files of its session: opening the workspace and its door to the network, reading the
//! repository's guidance, and taking snapshots.

mod egress;
mod environment;
pub(crate) mod guidance;
mod image;
mod patience;
pub(crate) mod snapshots;
mod stored;
pub(crate) mod workspace;
