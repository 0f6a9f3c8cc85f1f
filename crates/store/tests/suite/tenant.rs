//! The resources of a tenant.

pub(crate) mod accesses;
mod bundles;
pub(crate) mod forge;
mod images;
mod jobs;
mod keys;
mod projects;
mod readings;
pub(crate) mod secrets;
mod tenants;
mod worktrees;
