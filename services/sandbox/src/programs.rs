//! The programs that start in the sandbox of a caller: the script of its settings (`start_script`), and those at terminals (`terminal_start`). The
//! commands of agents are in `exec`, which knows no caller.

pub mod start_script;
pub mod terminal_start;
