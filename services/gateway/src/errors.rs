//! Why a call fails: the error of the whole gateway, and what it names.

pub(crate) mod code_header;
pub(crate) mod entity;
pub(crate) mod error;
pub(crate) mod forge_refusal;
pub(crate) mod invalid;
pub(crate) mod push_refusal;
pub(crate) mod refusal;
