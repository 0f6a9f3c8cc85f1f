//! What the operations of both APIs share: who calls and for which directory, how a request is read, and how it is refused.

pub(super) mod caller;
pub(super) mod directory;
pub(super) mod ids;
pub(super) mod input;
pub(super) mod origin;
pub(super) mod read;
pub(super) mod refusal;
pub(super) mod sse;
