//! How the broker reaches hosts of the outside: directly, at addresses that it has checked, or through the proxy of the operator's network, the upstream
//! proxy. It opens every connection to such a host here, or lets an HTTP client do it that is built here.

pub mod error;
pub mod names;
pub mod proxy;

pub(crate) mod client;
pub(crate) mod route;

mod tunnel;
