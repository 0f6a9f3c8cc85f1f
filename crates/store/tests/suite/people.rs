//! Requests, approvals and settings of people, and their decisions about environments.

mod approvals;
mod environments;
mod requests;
mod settings;
mod waits;
