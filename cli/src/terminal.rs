//! Output for people and programs: text, tables, colours, JSON lines, a pager, and the progress of waits.

pub(crate) mod json;
pub(crate) mod keyboard;
pub(crate) mod output;
mod pager;
pub(crate) mod paint;
pub(crate) mod progress;
pub(crate) mod raw;
pub(crate) mod show;
pub(crate) mod table;
