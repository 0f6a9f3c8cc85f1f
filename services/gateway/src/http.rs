//! OpenCode's HTTP API on the same port: a translation to the use cases of `app`. `v1` is the API of its TUI and SDK, `v2` the newer
//! one below `/api`, `contract` the list and the description of all operations.
// Continues in contract::table, which lists the operations, and in v1::messages, for a prompt.

mod callers;
pub(crate) mod contract;
mod input;
mod refusal;
pub(crate) mod routes;
mod sse;
mod v1;
mod v2;
