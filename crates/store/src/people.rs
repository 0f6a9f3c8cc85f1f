//! Requests to people and their decisions: requests, standing approvals, stored settings, the environments of repositories, their pushes, and why a
//! session waits.

pub mod approvals;
pub mod environments;
pub mod pushes;
pub mod requests;
pub mod settings;
pub mod waits;
