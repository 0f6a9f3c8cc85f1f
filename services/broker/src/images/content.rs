//! The names, manifests and configurations of images, as texts and bytes. No network.

pub mod configuration;
pub mod digest;
pub mod manifest;
pub mod reference;
