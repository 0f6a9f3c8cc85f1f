//! Events: streams of a session or a tenant, pages of a log, and the current state for clients that join late.

pub(crate) mod log;
pub(crate) mod snapshot;
pub(crate) mod subscribe;
