//! Model providers: one request in, one stream of events out. Each wire protocol has a folder. The crate knows nothing
//! about sessions.
//!
//! `client` sends a `request` to a provider of the `config` and returns `event`s. `decode` is its pure half (bytes in,
//! events out), built from `sse` and one decoder per protocol. `accumulate` folds events into the answer; it alone
//! decides whether a tool call may run.

pub mod accumulate;
pub mod catalogue;
pub mod client;
pub mod config;
pub mod decode;
pub mod error;
pub mod event;
pub mod model;
pub mod protocols;
pub mod provider;
pub mod request;
pub mod sse;

mod json;
mod retry_after;
