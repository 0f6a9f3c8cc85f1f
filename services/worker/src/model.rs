//! Model calls: the gate through which every call starts and which accounts for its cost, and the streamed answer of a step.

mod answer_draft;
pub(crate) mod call;
mod failure;
pub(crate) mod gate;
