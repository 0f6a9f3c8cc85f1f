//! The public API. Each call is read, its fence is checked, its work is done, and it gets a response or a coded error. If its
//! caller leaves, an effect goes on, so that no exec and no file stays half made, and a read ends.
//!
//! `sandbox` and `terminal` are the two services, `server` is what implements them, `call` is one call, and `scope` says
//! which session it is about.

pub mod auth;
mod call;
mod environments;
mod exec;
mod file;
mod guidance;
mod layers;
mod machine;
mod mirrors;
mod open;
mod sandbox;
mod scope;
pub mod server;
mod terminal;
