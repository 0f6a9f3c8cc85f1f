//! What a script of the settings installs beside the files of a repository (`environment.install`). `listing` is what a tree has before it, `key` names all that
//! it depends on, `run` runs it in a clone of its own and keeps what it left, `copy` copies trees, and `take` fills a new workspace with it.

mod copy;
pub mod key;
mod listing;
pub mod run;
pub(super) mod take;
