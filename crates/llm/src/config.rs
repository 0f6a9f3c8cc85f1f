//! The configuration of the providers: read from `flotilla.toml` or from the environment, and checked.

pub mod environment;
pub mod file;
pub mod problem;
pub mod providers;

#[cfg(test)]
mod tests;
