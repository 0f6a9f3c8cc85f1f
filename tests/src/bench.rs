//! Benchmarks, measured from outside. One process is both the model and the client, so one clock measures both ends of
//! every span.

pub mod durability;
pub mod events;
pub mod figure;
pub mod files;
pub mod hostile;
pub mod loops;
pub mod machine;
pub mod main_job;
pub mod model;
pub mod peer;
pub mod profile;
pub mod samples;
pub mod sandbox;
mod sources;
mod stored;
pub mod testbed;
pub mod week;
