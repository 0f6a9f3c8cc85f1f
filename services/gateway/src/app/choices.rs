//! The choices of a prompt or a session, which both check before anything is stored: its agents, and the options of its prompts.

pub(crate) mod agents;
pub(crate) mod options;
