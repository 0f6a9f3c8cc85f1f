//! Anthropic Messages. `decode` turns its answers into our events, `request` writes our requests in its words.

pub mod decode;
pub mod request;
