//! The resources of a tenant.

mod bundles;
mod keys;
mod projects;
pub(crate) mod secrets;
mod tenants;
