//! The gRPC services: translations from the wire to the use cases of `app`, and back. One file for each service.

mod admin;
mod convert;
mod convert_prompt;
mod event;
mod github;
mod machine;
mod message;
mod project;
mod prompt;
mod requests;
mod secret;
pub(crate) mod service;
mod session;
mod settings;
pub(crate) mod status;
mod tenant;
