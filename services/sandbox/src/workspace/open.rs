//! The opening of workspaces. `spec` is what a caller asks for, `ahead` clones its source and keeps the files until `run` makes the workspace, and `clone`,
//! `lfs` and `submodules` run git. `server_door` leads to the server of a public repository. `kept` finds the objects of Git LFS that another session has. `reading` reads what a
//! commit has for agents, and fills the mirror. `progress` tells how far an opening is.

pub mod ahead;
mod clone;
mod kept;
mod lfs;
pub mod progress;
pub mod reading;
pub mod run;
mod server_door;
pub mod spec;
mod submodules;
