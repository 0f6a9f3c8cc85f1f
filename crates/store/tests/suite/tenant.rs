//! The resources of a tenant.

pub(crate) mod accesses;
mod bundles;
mod keys;
mod projects;
pub(crate) mod secrets;
mod tenants;
