//! What the use cases share: the handle, pages of lists, common checks, and waking a session.

pub(crate) mod checks;
pub(crate) mod gateway;
pub(crate) mod page;
pub(crate) mod wake;
