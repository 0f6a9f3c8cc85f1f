//! The conversation of a session: its messages in memory, the part that a model sees, and the facts that are derived from
//! them. Nothing here calls a model, a tool or the sandbox.

pub(crate) mod changes;
pub(crate) mod entries;
pub(crate) mod kept;
pub(crate) mod marks;
pub(crate) mod memory;
pub(crate) mod model_view;
pub(crate) mod prune;
pub(crate) mod refused;
pub(crate) mod structured;
pub(crate) mod summary;
pub(crate) mod title;
