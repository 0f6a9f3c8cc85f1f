//! What people, models and tools say to each other in a session, and what is made from it: messages and their parts, commands,
//! titles, requests to people, and how much of a conversation fits into a model's context.

pub mod batch;
pub mod command;
pub mod context;
pub mod media;
pub mod message;
pub mod part;
pub mod request;
pub mod title;
