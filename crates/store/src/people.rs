//! Requests to people and their decisions: requests, standing approvals, the environments of repositories, their pushes, and why a
//! session waits.

pub mod approvals;
pub mod environments;
pub mod pushes;
pub mod requests;
pub mod waits;
