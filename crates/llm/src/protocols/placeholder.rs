//! A stand-in tool, for providers that require a list of tools when the request offers none.

/// The name of the stand-in tool.
pub(crate) const NO_TOOL: &str = "_noop";
pub(crate) const NO_TOOL_SAYS: &str = "Does nothing. Do not call it.";
