//! What the App of this deployment does at its forge: it asks who somebody is, and shows the work of sessions. Its credentials, and the tokens that it gets with them, are
//! nowhere else. Each kind of forge has a folder.

pub mod error;
pub mod github;

pub(crate) mod repository;
