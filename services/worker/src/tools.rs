//! The tools of the agent: what each offers the model, and what it does with checked arguments. One file per tool; the registry
//! lists them. How calls are permitted, run side by side and bounded is the business of `calls`.

pub(crate) mod bash;
pub(crate) mod batch;
pub(crate) mod context;
pub(crate) mod files;
pub(crate) mod invalid;
pub(crate) mod media;
pub(crate) mod outcome;
pub(crate) mod people;
pub(crate) mod registry;
pub(crate) mod skill;
pub(crate) mod spec;
pub(crate) mod task;
pub(crate) mod todos;
pub(crate) mod tool;
pub(crate) mod webfetch;
