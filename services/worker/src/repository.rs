//! The loop's questions to the sandbox about the files of its session: opening the workspace with its environment and its door to the network,
//! reading the repository's guidance, taking snapshots, and copying the files for a subtask. `reading` keeps what commits have for agents, so that the guidance of a new session
//! needs no files. `progress` tells people what they wait for, and `warm_up` brings what sessions share before there is a loop.

pub(crate) mod above;
pub(crate) mod copy;
mod egress;
mod environment;
mod grants;
pub(crate) mod guidance;
mod image;
mod patience;
mod progress;
mod proposal;
pub(crate) mod reading;
mod secrets;
pub(crate) mod snapshots;
mod stored;
pub(crate) mod warm_up;
pub(crate) mod workspace;
