//! How tool calls run: what they would be used on, whether that is permitted, how they are checked and bounded, and how those of
//! one step run side by side. What a single tool does is the business of `tools`.

pub(crate) mod output;
pub(crate) mod perform;
pub(crate) mod permissions;
pub(crate) mod run;
mod shell;
mod uses;
