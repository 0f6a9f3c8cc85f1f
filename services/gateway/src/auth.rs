//! Authentication: API keys, those of open streams, the limit on wrong keys, the address and the web page that a call
//! comes from.

pub(crate) mod attempts;
pub(crate) mod client;
pub(crate) mod key;
mod key_cache;
pub(crate) mod keys;
pub(crate) mod live_keys;
pub(crate) mod origin;
pub(crate) mod principal;
pub(crate) mod refused_keys;
