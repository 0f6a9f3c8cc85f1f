//! The inputs of a step's model call: the agent and the model that answer, and the request.

pub(super) mod models;
pub(super) mod step_call;
