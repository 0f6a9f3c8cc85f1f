//! Keeps what is stored bounded: removes what nobody needs any more and measures what stays, in small batches, while the loops run. Every worker
//! does this; each batch is locked in Postgres, or may be done twice.

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
