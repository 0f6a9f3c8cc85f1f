//! The rows of a tenant other than its sessions: the tenant itself, its keys, settings, projects, secrets and bundles, what was read of its
//! repositories, how long its sessions are kept, and what all of it takes.

pub mod accesses;
pub mod bundle_writer;
pub mod bundles;
pub mod forge;
pub mod images;
pub mod jobs;
pub mod keys;
pub mod projects;
pub mod readings;
pub mod retention;
pub mod secrets;
pub mod settings;
pub mod tenants;
pub mod usage;
pub mod worktrees;
