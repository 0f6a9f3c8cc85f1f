//! Common parts of the operations of both APIs: the caller and its directory, reading a request, and refusing it.

pub(super) mod access;
pub(super) mod caller;
pub(super) mod directory;
pub(super) mod ids;
pub(super) mod input;
pub(super) mod origin;
pub(super) mod query;
pub(super) mod read;
pub(super) mod refusal;
pub(super) mod sse;
