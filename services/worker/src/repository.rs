//! What a loop asks the sandbox about the files of its session: that the workspace is open, what the repository says to agents,
//! and the snapshots of the files.

pub(crate) mod guidance;
pub(crate) mod snapshots;
pub(crate) mod workspace;
