//! Pulls images from registries, with the credentials of tenants. Bytes pass through; nothing is kept here but the lists of layers of a few
//! images.
//!
//! A registry is a stranger: what it says is bounded and checked against the digests that the caller names, and where it points to must be on
//! the public internet, or opened by the operator.

pub mod content;
pub mod error;
pub mod patience;
pub mod puller;
pub mod registry;
pub mod request;
pub mod stream;

mod audit;
mod known;
