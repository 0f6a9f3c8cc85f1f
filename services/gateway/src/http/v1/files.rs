//! Files of a directory: reading, changes since the first commit, and skills.

pub(in crate::http) mod read;
pub(in crate::http) mod skills;
pub(in crate::http) mod vcs;
