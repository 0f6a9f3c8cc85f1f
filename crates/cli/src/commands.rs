//! The commands, one file each, and the arguments that several of them share.

pub(crate) mod admin;
pub(crate) mod answer;
pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod budget;
pub(crate) mod checkout;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod doctor;
pub(crate) mod history;
pub(crate) mod project;
pub(crate) mod prompt;
pub(crate) mod sessions;
pub(crate) mod subtasks;
pub(crate) mod watch;
pub(crate) mod why;
