//! The wire protocols of the providers, a folder each, and the code that their requests share. No protocol imports
//! another.

pub mod anthropic;
pub mod classify;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

pub(crate) mod sampling;

pub(crate) mod history;
mod ids;
mod placeholder;
mod schema;
