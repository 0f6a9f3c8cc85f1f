//! The store on a real Postgres: every function, and what must not happen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod bundles;
mod chunks;
mod connection;
mod events;
mod execs;
mod inputs;
mod isolation;
mod keys;
mod messages;
mod migrate;
mod projects;
mod record;
mod runs;
mod sessions;
mod system;
mod tenants;
mod world;
