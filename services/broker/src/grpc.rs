//! The gRPC service, and the check of its callers' tokens.

pub(crate) mod auth;
pub(crate) mod forge;
pub(crate) mod server;

mod call;
mod ids;
mod images;
mod pages;
mod push;
