//! The stack on one machine, and each service of it.

pub(crate) mod running;
pub(crate) mod service;
pub(crate) mod up;
