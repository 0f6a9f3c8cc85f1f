//! Unpacks layers of container images. A layer is foreign content: `flotilla-unpack` does this in a process of its own that can write into one
//! directory and nowhere else.

pub mod blob;
pub mod bounds;
pub mod layer;
pub mod refusal;
pub mod walls;

mod tree;
