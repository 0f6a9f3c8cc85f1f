//! The shared state of the worker process: its clock, its connections, its client of the sandbox service, and its messages
//! to loops. Nothing here knows conversations, turns or tools.

pub(crate) mod broker;
pub(crate) mod clean;
pub(crate) mod clock;
pub(crate) mod contention;
pub(crate) mod control;
pub(crate) mod deps;
pub(crate) mod regain;
pub(crate) mod sandbox;
pub(crate) mod source_reads;
pub(crate) mod store_timeout;
