//! What `./dev demo` shows with a stack of real processes, unattended, and checks.

pub mod environments;
pub mod github;
mod outside;
mod project;
mod report;
mod stack;
mod toolchain;
pub mod toolchains;
