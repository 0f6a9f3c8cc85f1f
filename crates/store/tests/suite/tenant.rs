//! The resources of a tenant.

pub(crate) mod accesses;
mod bundles;
mod images;
mod keys;
mod projects;
mod readings;
pub(crate) mod secrets;
mod tenants;
mod worktrees;
