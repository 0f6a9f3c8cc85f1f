//! Projects: repositories or directories, the sources of their files, their worktrees, and uploaded bundles.

pub(crate) mod bundle_head;
pub(crate) mod bundles;
pub(crate) mod home;
pub(crate) mod manage;
pub(crate) mod place;
pub(crate) mod source;
pub(crate) mod uploaded;
pub(crate) mod worktrees;
