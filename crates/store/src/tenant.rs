//! The rows of a tenant besides its sessions: the tenant itself, its keys, projects and bundles.

pub mod bundles;
pub mod keys;
pub mod projects;
pub mod tenants;
