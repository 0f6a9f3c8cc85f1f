//! The client of registries: which hosts it reaches, what it shows them, and how it reads their answers.

pub mod credential;
pub mod hosts;

pub(crate) mod blob;
pub(crate) mod client;
pub(crate) mod http;

mod token;
