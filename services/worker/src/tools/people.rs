//! The tools by which the agent asks a person. What a call means is here; the loop asks and parks.

pub(crate) mod plan_exit;
pub(crate) mod question;
