//! One session's loop: performs the actions that `domain::turn` decides on, and feeds back their results. `run` dispatches, and
//! `concerns` performs the actions that need several concerns. Every other file is one concern: a struct with its own fields that
//! decides without side effects and writes through `session`. No concern reads the fields of another.

mod budget;
mod calling;
mod compaction;
mod concerns;
mod finish;
mod opening;
mod prompt;
pub(crate) mod run;
mod session;
mod snapshots;
mod step;
mod stored;
mod titling;
mod tool_calls;
mod waits;
