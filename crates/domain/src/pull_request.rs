//! Work on issues and pull requests of a forge: what a comment asks for, who may ask, and what the platform shows for it. Nothing here knows which forge it is.

pub mod change;
pub mod command;
pub mod missed;
pub mod open_request;
pub mod permission;
pub mod prompt;
pub mod request;
pub mod shown;
pub mod subject;
pub mod thread;
pub mod view;
pub mod visible;
