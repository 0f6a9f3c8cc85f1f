//! The clients of a run: what they send, and what they receive.

pub mod canary;
pub mod client;
pub mod people;
pub mod script;
pub mod sessions;
pub mod subscriber;
