//! Streams of events, shared by all clients that are subscribed to the same session or tenant. This module knows no protocol;
//! `app::events` begins streams, and a protocol translates their items.

pub(crate) mod backlog;
pub(crate) mod bounded;
pub(crate) mod cursor;
pub(crate) mod event;
pub(crate) mod feed;
pub(crate) mod fleet;
pub(crate) mod hub;
pub(crate) mod notices;
pub(crate) mod open_parts;
pub(crate) mod open_texts;
pub(crate) mod progress;
pub(crate) mod shared;
pub(crate) mod subscription;
pub(crate) mod tenant_subscription;
pub(crate) mod update;
