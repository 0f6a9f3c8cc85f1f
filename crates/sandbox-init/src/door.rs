//! The door of the session to the network, seen from inside: `forward` carries connections to it, and `lfs` reads objects of Git LFS through it.

pub(super) mod forward;
pub(super) mod lfs;
