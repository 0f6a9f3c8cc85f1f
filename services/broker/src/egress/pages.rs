//! Pages of the web for the models of sessions.

pub mod error;
pub mod reader;
