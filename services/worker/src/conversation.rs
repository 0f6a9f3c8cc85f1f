//! What was said in a session: its messages in memory, what of them a model sees, and what is read from them. Nothing here
//! calls a model, a tool or the sandbox.

pub(crate) mod changes;
pub(crate) mod entries;
pub(crate) mod marks;
pub(crate) mod memory;
pub(crate) mod model_view;
pub(crate) mod prune;
pub(crate) mod structured;
pub(crate) mod summary;
pub(crate) mod title;
