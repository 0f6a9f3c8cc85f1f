//! The commits of a push: which they are, what each of them changes, and how contents of Git LFS become pointers.

pub(super) mod blobs;
pub(super) mod change;
pub(super) mod inspection;
pub(super) mod lfs;
pub(crate) mod listing;
pub(super) mod pointers;
