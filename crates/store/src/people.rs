//! Requests to people and their decisions: requests, standing approvals, stored settings, and why a session waits.

pub mod approvals;
pub mod requests;
pub mod settings;
pub mod waits;
