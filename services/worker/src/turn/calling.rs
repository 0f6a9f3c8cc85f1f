//! What a model call of a step is made from: the agent and the model that answer, and the request.

pub(super) mod models;
pub(super) mod step_call;
