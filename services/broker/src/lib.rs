//! The broker: the one process that holds credentials of the outside, and the one door of sandboxes to it.
//!
//! So far it is a library with the rules of that door, `egress`. No service starts it yet.

pub mod egress;
