//! The vocabulary of Flotilla and its decisions: pure data and pure functions.
//! No IO, no clock, no randomness, no async: time and ids are arguments.

pub mod agent;
pub mod command;
pub mod context;
pub mod event;
pub mod ids;
pub mod level;
pub mod limits;
pub mod media;
pub mod message;
pub mod model;
pub mod money;
pub mod part;
pub mod permission;
pub mod project;
pub mod request;
pub mod session;
pub mod text;
pub mod title;
pub mod tool;
pub mod turn;
pub mod wait;
