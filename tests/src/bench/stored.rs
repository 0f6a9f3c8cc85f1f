//! Sessions that are written into Postgres directly.

pub(super) mod copies;
pub(super) mod past;
