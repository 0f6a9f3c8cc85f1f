//! Prompts: checks, storing them with the input that wakes a loop, announcing them, and waiting for the end of a
//! turn.

pub(crate) mod accept;
pub(crate) mod no_files;
pub(crate) mod parts;
pub(crate) mod request;
pub(crate) mod turn;
