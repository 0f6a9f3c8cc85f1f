//! The rows of a tenant besides its sessions: the tenant itself, its keys, projects and bundles, and what all of it takes.

pub mod bundles;
pub mod keys;
pub mod projects;
pub mod tenants;
pub mod usage;
