//! Requests, approvals, settings and pushes of people, and their decisions about environments.

mod approvals;
mod environments;
mod pushes;
mod requests;
mod settings;
mod waits;
