//! The settings of the service: `config` has all of them, `tokens` reads those of its callers.

pub mod config;
pub mod tokens;
