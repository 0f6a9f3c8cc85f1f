//! The tool that stands in where a provider insists on a list of tools and the request offers none.

/// Offered in place of no tools at all.
pub(crate) const NO_TOOL: &str = "_noop";
pub(crate) const NO_TOOL_SAYS: &str = "Does nothing. Do not call it.";
