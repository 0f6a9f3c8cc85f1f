//! Who follows what: the streams of events, shared by all clients that follow the same session or tenant. No protocol is known
//! here; `app::events` begins streams, a protocol translates their items.

pub(crate) mod backlog;
pub(crate) mod cursor;
pub(crate) mod event;
pub(crate) mod feed;
pub(crate) mod fleet;
pub(crate) mod hub;
pub(crate) mod notices;
pub(crate) mod open_parts;
pub(crate) mod open_texts;
pub(crate) mod shared;
pub(crate) mod subscription;
pub(crate) mod tenant_subscription;
pub(crate) mod update;
