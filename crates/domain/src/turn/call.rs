//! The name of a tool call.

/// The provider's id of a tool call.
pub type CallId = String;
