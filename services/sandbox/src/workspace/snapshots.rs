//! Earlier states of a workspace's files: kept, compared, restored. Each snapshot is a git tree in a git directory
//! next to the files, which no program of the tenant sees. Git reads and writes the files in helper sandboxes only.
//!
//! A helper that reads the files may write the snapshots; a helper that writes files may not. So a program that
//! moves links at the same time cannot lead git into the directory of the snapshots.

pub mod apply;
mod differences;
pub mod export;
pub mod merge;
pub mod operations;
mod record;
pub(super) mod seed;
mod store;
#[cfg(test)]
mod tests;
