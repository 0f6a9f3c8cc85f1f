//! Requests, approvals and settings of people.

mod approvals;
mod requests;
mod settings;
mod waits;
