//! OpenAI Chat Completions and compatible servers. `decode` converts answers to our events, `request` converts our
//! requests to JSON.

pub mod decode;
pub mod request;

mod calls;
mod reasoning;
