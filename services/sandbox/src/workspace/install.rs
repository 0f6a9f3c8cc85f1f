//! Installs: a script of the settings (`environment.install`) adds files to those of a repository, such as packages. `listing` reads a tree before the script
//! runs, `key` names everything that its result depends on, `run` runs it in a clone of its own and keeps the files that it added, `copy` copies trees, and
//! `take` copies these files into a new workspace.

mod copy;
pub mod key;
mod listing;
pub mod run;
pub(super) mod take;
