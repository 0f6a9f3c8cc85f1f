//! What the other modules stand on.

pub(crate) mod http_backend;
pub(crate) mod http_server;
pub(crate) mod servers;
pub(crate) mod wait;
