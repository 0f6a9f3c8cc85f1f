//! The broker through its public API, with real connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "suite/egress.rs"]
mod egress;
