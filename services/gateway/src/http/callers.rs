//! Who calls, from where, for which directory, and whether it may.

pub(super) mod access;
pub(super) mod caller;
pub(super) mod directory;
pub(super) mod origin;
