//! The loop's questions to the sandbox about the files of its session: opening the workspace and its door to the network, reading the
//! repository's guidance, and taking snapshots.

mod egress;
pub(crate) mod guidance;
pub(crate) mod snapshots;
pub(crate) mod workspace;
