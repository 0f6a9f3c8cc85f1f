//! What a sandbox machine costs, and what it saves.

pub mod broker;
mod client;
pub mod environments;
pub mod repositories;
