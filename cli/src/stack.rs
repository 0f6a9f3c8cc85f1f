//! The stack on one machine, its services, and the gateways that commands call.

pub(crate) mod contexts;
pub(crate) mod down;
mod private;
pub(crate) mod running;
pub(crate) mod service;
pub(crate) mod target;
pub(crate) mod up;
