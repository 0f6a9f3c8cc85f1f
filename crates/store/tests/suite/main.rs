//! The store on a real Postgres: every function, and what it must not do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod connection;
mod control;
mod family;
mod isolation;
mod ledger;
mod log;
mod migrate;
mod people;
mod plans;
mod session;
mod tenant;
mod world;
