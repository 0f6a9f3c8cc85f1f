//! The lines of audit.

/// Their target. A filter of logs must not drop them.
pub(crate) const AUDIT: &str = "audit";
