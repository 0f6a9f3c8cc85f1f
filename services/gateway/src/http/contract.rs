//! What is served, what is described, and what is refused because this service does not have it.

pub(super) mod document;
mod notation;
mod operation;
mod schemas;
pub(super) mod table;
mod table_v2;
pub(crate) mod unsupported;
