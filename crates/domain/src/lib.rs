//! The vocabulary of Flotilla and its decisions: pure data and pure functions.
//! No IO, no clock, no randomness, no async: time and ids are arguments.

pub mod conversation;
pub mod egress;
pub mod event;
pub mod ids;
pub mod limits;
pub mod model;
pub mod money;
pub mod opening;
pub mod policy;
pub mod project;
pub mod pull_request;
pub mod secret;
pub mod session;
pub mod text;
pub mod turn;
pub mod wait;
