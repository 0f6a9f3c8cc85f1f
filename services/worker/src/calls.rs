//! Runs tool calls: their subjects, permissions, checks and bounds, and the parallel calls of one step. `tools` defines what
//! each tool does.

pub(crate) mod judge;
pub(crate) mod output;
pub(crate) mod perform;
pub(crate) mod permissions;
pub(crate) mod readers;
pub(crate) mod run;
pub(crate) mod uses;
