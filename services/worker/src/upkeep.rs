//! Keeps the stored data bounded. While the loops run, every worker removes data that no tenant needs any more and measures the rest, in small batches.
//! Postgres locks each batch, or two workers may do it twice.

mod bundles;
mod error;
mod ledger;
mod logs;
mod reconciliation;
mod removals;
mod rows;
pub(crate) mod run;
mod sessions;
mod tenants;
mod unused;
mod usage;
mod work;
