//! The rows of a tenant.

mod bundles;
mod keys;
mod projects;
mod tenants;
