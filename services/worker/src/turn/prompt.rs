//! The preparation of a prompt before a model answers it: its commands are expanded, and its files are read. The calls that it
//! requests become a step (`prompt_calls`).

pub(super) mod commands;
pub(super) mod expansion;
pub(super) mod files;
