//! The preparation of a prompt before a model answers it: its commands are expanded, its files are read, and the calls that it
//! requests become a step.

pub(super) mod calls;
pub(super) mod commands;
pub(super) mod expansion;
pub(super) mod files;
