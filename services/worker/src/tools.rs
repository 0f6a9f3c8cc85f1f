//! The tools of the agent: their descriptions for the model, and their actions with validated arguments. One file per tool; the
//! registry lists them. `calls` permits, runs and bounds calls.

pub(crate) mod bash;
pub(crate) mod batch;
pub(crate) mod context;
pub(crate) mod egress;
pub(crate) mod files;
pub(crate) mod invalid;
pub(crate) mod media;
pub(crate) mod outcome;
pub(crate) mod path;
pub(crate) mod people;
pub(crate) mod registry;
pub(crate) mod skill;
pub(crate) mod spec;
pub(crate) mod task;
pub(crate) mod todos;
pub(crate) mod tool;
