//! Calls of models: the gate through which every call starts and which accounts for its cost, and the answer of a step as it
//! streams.

pub(crate) mod call;
mod draft;
pub(crate) mod gate;
