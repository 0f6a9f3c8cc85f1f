//! What agents ask of people.

mod permission;
mod question;
