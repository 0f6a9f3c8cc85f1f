//! The stack on one machine, and its services.

pub(crate) mod running;
pub(crate) mod service;
pub(crate) mod up;
