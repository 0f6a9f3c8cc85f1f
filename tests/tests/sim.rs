//! The simulation of the protocol: every state within small bounds, random walks within larger ones, both with each rule
//! broken, and the comparison of the simulated servers with the real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "sim/broken.rs"]
mod broken;
#[path = "sim/exhaustive.rs"]
mod exhaustive;
#[path = "sim/queue.rs"]
mod queue;
#[path = "sim/random.rs"]
mod random;
#[path = "sim/store.rs"]
mod store;
