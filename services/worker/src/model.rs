//! Model calls: the gate through which every call starts and which accounts for its cost, and the streamed answer of a step.

pub(crate) mod call;
mod draft;
mod failure;
pub(crate) mod gate;
