//! The tools with which the agent asks a person. They define the meaning of a call; the loop asks and parks.

pub(crate) mod plan_exit;
pub(crate) mod question;
