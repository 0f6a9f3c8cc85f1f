//! One session's loop: performs the actions that `domain::turn` decides on, and feeds back what happens. `run` waits for events,
//! `session_loop` has the state, and `actions` has a file for each action. Every other file is one concern: a struct with its own
//! fields that decides without side effects and writes through `session`. No concern reads the fields of another.

mod actions;
mod budget;
mod calling;
mod compaction;
mod guidance;
pub(crate) mod intents;
mod parking;
mod prompt;
pub(crate) mod prompt_calls;
pub(crate) mod run;
mod session;
mod session_loop;
mod snapshots;
mod step;
mod stored;
mod titling;
mod tool_calls;
mod waits;
