//! Model providers: one request in, one stream of events out. One file per wire protocol; knows nothing of sessions.
//!
//! `client` sends a `request` to a provider of the `config` and gives `event`s; `decode` is the pure half of it
//! (bytes in, events out), built from `sse` and one decoder per protocol. `accumulate` folds events into the answer
//! and is the only place that says whether a tool call may run.

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
