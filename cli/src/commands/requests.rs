//! Commands for the requests of sessions to people.

pub(crate) mod answer;
pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod subtasks;
pub(crate) mod why;
