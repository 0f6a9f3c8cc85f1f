//! The API of OpenCode's TUI and SDK.

pub(super) mod catalogue;
pub(super) mod clients;
pub(super) mod edits;
pub(super) mod files;
pub(super) mod messages;
pub(super) mod operator;
pub(super) mod projects;
pub(super) mod requests;
pub(super) mod sessions;
mod shape;
pub(super) mod stream;
pub(super) mod terminals;
pub(super) mod welcome;
pub(super) mod worktrees;
