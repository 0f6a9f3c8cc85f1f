//! Turns a conversation into a provider-neutral model request.

mod media;
mod mode;
pub(crate) mod request;
pub(crate) mod step_context;
mod system;
mod user;
