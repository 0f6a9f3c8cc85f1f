//! The connection to the sandbox service, and what that service and the broker refuse. The connection to the broker stands above, with the errors.

pub(crate) mod push;
pub(crate) mod sandbox;
