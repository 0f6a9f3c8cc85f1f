//! What the whole worker process shares: its clock, its connections, its client of the sandbox service, and what its loops
//! are told. Nothing here knows of a conversation, a turn or a tool.

pub(crate) mod clean;
pub(crate) mod clock;
pub(crate) mod contention;
pub(crate) mod control;
pub(crate) mod deps;
pub(crate) mod sandbox;
pub(crate) mod store_timeout;
