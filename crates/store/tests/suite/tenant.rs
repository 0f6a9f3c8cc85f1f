//! What belongs to a tenant.

mod bundles;
mod keys;
mod projects;
mod tenants;
