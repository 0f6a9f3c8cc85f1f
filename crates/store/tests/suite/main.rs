//! The store on a real Postgres: every function, and what must not happen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod aborts;
mod approvals;
mod budget;
mod bundles;
mod children;
mod chunks;
mod connection;
mod deletion;
mod edits;
mod events;
mod execs;
mod family;
mod feed;
mod history;
mod inputs;
mod isolation;
mod keys;
mod messages;
mod migrate;
mod operator;
mod park;
mod projects;
mod quarantine;
mod queue;
mod record;
mod requests;
mod reverts;
mod runs;
mod sessions;
mod settings;
mod system;
mod tenants;
mod tree;
mod waits;
mod world;
