//! Sessions: created, read, changed, aborted, deleted; why they wait and what they produce.

pub(crate) mod abort;
pub(crate) mod budget;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod output;
pub(crate) mod read;
pub(crate) mod waits;
