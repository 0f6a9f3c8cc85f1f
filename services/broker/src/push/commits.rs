//! The commits of a push: which they are, and what each of them changes.

pub(super) mod change;
pub(super) mod inspection;
pub(super) mod lfs;
