//! The connections to the sandbox service and to the broker.

pub(crate) mod broker;
pub(crate) mod files;
pub(crate) mod forge;
pub(crate) mod sandbox;
