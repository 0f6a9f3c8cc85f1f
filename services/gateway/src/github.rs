//! GitHub's webhook, and what its deliveries mean. Everything that knows the form of a delivery is here; `app::forge` decides.

pub(crate) mod inbox;
pub(crate) mod sweep;
pub(crate) mod webhook;

mod payload;
