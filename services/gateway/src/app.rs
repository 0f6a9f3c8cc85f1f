//! The use cases of the gateway. Each takes the handle, the principal and domain types, and returns domain types or
//! `errors::error::Error`. All ways in end here: only this module reaches the store, the bus and the sandbox, because the state
//! inside `gateway::Gateway` is private to it. A protocol (`grpc`, `http`) translates to and from these functions and
//! makes no other decision.

pub(crate) mod admission;
pub(crate) mod catalogue;
pub(crate) mod checks;
pub(crate) mod choices;
pub(crate) mod environments;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod forge;
pub(crate) mod gateway;
pub(crate) mod history;
pub(crate) mod operator;
pub(crate) mod page;
pub(crate) mod projects;
pub(crate) mod prompts;
pub(crate) mod requests;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod tenants;
pub(crate) mod terminals;
