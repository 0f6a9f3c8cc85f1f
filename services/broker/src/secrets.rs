//! Secrets of tenants and projects as they rest: each under a key of its own, and that key under one that never stands in Postgres.

mod cipher;
pub mod deployment_key;
mod envelope;
pub mod error;
mod forge_app;
pub mod key_file;
pub mod keyring;
pub mod place;
pub mod reseal;
pub mod transit;
pub mod vault;
