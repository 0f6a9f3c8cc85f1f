//! The loop's questions to the sandbox about the files of its session: opening the workspace, reading the repository's
//! guidance, and taking snapshots.

pub(crate) mod guidance;
pub(crate) mod snapshots;
pub(crate) mod workspace;
