//! OpenCode's newer API, below `/api`. It shows the same data in other shapes, so it is built on the catalogue and the responses of
//! `v1`.

pub(super) mod events;
pub(super) mod files;
pub(super) mod location;
pub(super) mod messages;
pub(super) mod requests;
pub(super) mod sessions;
mod shape;
pub(super) mod terminals;
