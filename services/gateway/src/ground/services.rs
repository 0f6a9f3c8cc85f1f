//! The connections to our other services.

pub(crate) mod broker;
pub(crate) mod push;
pub(crate) mod sandbox;
