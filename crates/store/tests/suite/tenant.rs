//! The resources of a tenant.

mod bundles;
mod keys;
mod projects;
mod tenants;
