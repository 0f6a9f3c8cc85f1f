//! The provider configuration, read from `flotilla.toml` or from the environment, and validated.

pub mod environment;
pub mod file;
pub mod problem;
pub mod providers;

#[cfg(test)]
mod tests;
