//! Processes that a measurement starts or watches.

pub mod process;
pub mod usage;
