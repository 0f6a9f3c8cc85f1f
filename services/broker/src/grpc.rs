//! The gRPC service, and the check of its callers' tokens.

pub(crate) mod auth;
pub(crate) mod server;

mod ids;
mod images;
mod pages;
mod push;
