//! Commands for the life of a session: its prompts, its events, its files, its cost.

pub(crate) mod budget;
pub(crate) mod checkout;
pub(crate) mod egress;
pub(crate) mod export;
pub(crate) mod family;
pub(crate) mod history;
pub(crate) mod messages;
pub(crate) mod opening;
pub(crate) mod outcome;
pub(crate) mod presentation;
pub(crate) mod prompt;
pub(crate) mod pty;
pub(crate) mod push;
pub(crate) mod render;
pub(crate) mod sessions;
pub(crate) mod watch;
