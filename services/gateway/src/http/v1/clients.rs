//! Commands for terminal clients, such as those of an editor's extension for a TUI on the same machine.

pub(in crate::http) mod control;
pub(in crate::http) mod tui;
