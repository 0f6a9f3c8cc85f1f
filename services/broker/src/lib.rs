//! The broker: the one process that holds credentials of the outside, and the one door of sandboxes to it.
//!
//! So far it is a library: `egress`, the rules of that door, and `secrets`, how secrets rest. No service starts it yet.

pub mod egress;
pub mod secrets;
