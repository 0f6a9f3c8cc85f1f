//! Common parts of the use cases: the handle, pages of lists, checks, quotas, notes, and waking a session.

pub(crate) mod admission;
pub(crate) mod checks;
pub(crate) mod gateway;
pub(in crate::app) mod note;
pub(crate) mod page;
pub(crate) mod wake;
