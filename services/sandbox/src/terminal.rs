//! Terminals: programs that run in a sandbox at a pseudo-terminal, and the people who read and type.
//!
//! `pty` is one terminal, `attach` sends its output to a reader, and `registry` holds the
//! terminals of one session. All of it is in memory: a terminal ends with its sandbox, and so with this service.

pub mod attach;
pub mod limits;
pub mod permits;
pub mod pty;
pub mod registry;
mod scrollback;
