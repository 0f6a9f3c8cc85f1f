//! Benchmarks, measured from outside. One process is both the model and the client, so one clock measures both ends of
//! every span.

mod copies;
pub mod durability;
pub mod events;
pub mod figure;
pub mod hostile;
pub mod loops;
pub mod main_job;
pub mod model;
mod past;
pub mod process;
pub mod profile;
pub mod samples;
pub mod sandbox;
pub mod testbed;
pub mod week;
