//! Converts a conversation to a provider-neutral model request.

mod family;
mod media;
mod mode;
pub(crate) mod request;
pub(crate) mod step_context;
mod system;
mod user;
