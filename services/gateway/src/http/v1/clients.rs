//! Commands for terminal clients, such as those of an editor's extension for the TUI beside it.

pub(in crate::http) mod control;
pub(in crate::http) mod tui;
