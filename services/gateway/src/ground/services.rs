//! The connections to our other services.

pub(crate) mod sandbox;
