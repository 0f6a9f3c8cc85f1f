//! The bus on a real Redis and a real NATS: its guarantees, and its behaviour without them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod connection;
mod control;
mod doorbell;
mod fair;
mod feed;
mod outage;
mod queue;
mod rebuild;
mod report;
mod sequence;
mod tickets;
mod warm_up;
mod world;
mod yields;
