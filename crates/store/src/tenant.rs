//! The rows of a tenant other than its sessions: the tenant itself, its keys, projects, secrets and bundles, and what all of it takes.

pub mod accesses;
pub mod bundle_writer;
pub mod bundles;
pub mod images;
pub mod keys;
pub mod projects;
pub mod secrets;
pub mod tenants;
pub mod usage;
pub mod worktrees;
