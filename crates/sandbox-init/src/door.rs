//! The door of the session to the network, seen from inside: `forward` carries connections to it.

pub(super) mod forward;
