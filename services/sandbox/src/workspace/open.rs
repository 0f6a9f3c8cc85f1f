//! The opening of workspaces. `spec` is what a caller asks for, `ahead` clones its source and keeps the files until `run` makes the workspace, and `clone` and
//! `submodules` run git.

pub mod ahead;
mod clone;
pub mod run;
pub mod spec;
mod submodules;
