//! Earlier states of a workspace's files: kept, compared, brought back. Each snapshot is a git tree in a git directory
//! beside the files that no tenant's program sees. Git reads and writes the files in helper sandboxes only.
//!
//! A helper that reads the files may write the snapshots; a helper that writes files may not. So a program that moves links
//! about at the same time cannot lead git into its own directory.

pub mod apply;
mod differences;
pub mod export;
pub mod operations;
pub(super) mod seed;
mod store;
#[cfg(test)]
mod tests;
