//! What a sandbox machine costs, and what it saves.

pub mod broker;
pub mod environments;
pub mod repositories;
