//! Pages of the web for the models of sessions.

pub mod reader;
