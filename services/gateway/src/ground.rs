//! Common parts of every call: connections, errors, scopes and the time limits of bodies. Nothing here knows callers or
//! protocols.

mod answer_body;
pub(crate) mod bodies;
pub(crate) mod broker;
pub(crate) mod code_header;
pub(crate) mod directory_project;
pub(crate) mod entity;
pub(crate) mod error;
pub(crate) mod invalid;
pub(crate) mod origin;
pub(crate) mod quotas;
pub(crate) mod room;
pub(crate) mod scope;
pub(crate) mod services;
pub(crate) mod state;
pub(crate) mod taken_room;
