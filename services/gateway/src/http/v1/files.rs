//! Files of a directory: reading, changes against the first commit, and skills.

pub(in crate::http) mod read;
pub(in crate::http) mod skills;
pub(in crate::http) mod vcs;
