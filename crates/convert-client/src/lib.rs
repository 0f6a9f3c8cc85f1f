//! The services' side of `flotilla-convert`, the program that converts foreign content: pages of the web, shell text, edits,
//! patches, diffs, schemas. A conversion runs in a process of its own that holds no key, has bounds on time and memory, and can
//! be killed. This crate starts these processes, most of them before they are needed, and defines their requests; it links none of the
//! libraries that convert.

pub mod bounds;
pub mod converter;
pub mod error;
pub mod patch;
pub mod reply;
pub mod request;

mod process;
mod spares;
