//! The tools that read and change the files of the workspace.

pub(crate) mod apply_patch;
mod diff;
pub(crate) mod edit;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod list;
pub(crate) mod multiedit;
pub(crate) mod preview;
pub(crate) mod read;
pub(crate) mod write;
