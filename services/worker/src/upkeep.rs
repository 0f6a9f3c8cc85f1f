//! Keeps what is stored bounded: removes what nobody needs any more, in small batches, beside the loops. Every worker does this; each batch is
//! locked in Postgres, so no two workers do the same.

mod removals;
pub(crate) mod run;
