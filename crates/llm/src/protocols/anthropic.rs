//! Anthropic Messages. `decode` converts its answers to our events, `request` converts our requests to its JSON.

pub mod decode;
pub mod request;
