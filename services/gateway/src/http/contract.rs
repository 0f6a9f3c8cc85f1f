//! The served operations, their description, and the unsupported features.

pub(super) mod document;
mod notation;
mod operation;
mod schemas;
pub(super) mod table;
mod table_v2;
pub(crate) mod unsupported;
