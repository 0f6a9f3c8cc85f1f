//! The checker: one function for each promise, applied to the observers' record. It knows nothing about how the system
//! keeps its promises.

mod clients;
mod effects;
mod end;
mod inputs;
mod ownership;
pub mod promises;
mod tasks;
pub mod violation;
